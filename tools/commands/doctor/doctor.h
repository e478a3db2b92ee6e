// `engine doctor`: facts about each rank's host, measured links between all pairs of ranks, and
// what is wrong with them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/group.h"

namespace tools {

struct NetworkInterface {
  std::string name, address;
  int mtu = 0;
  std::int64_t speed_mbit = 0;  // 0: unknown, as for virtual ones
};

// Of one rank. Sent between ranks as JSON.
struct HostFacts {
  int rank = 0, pid = 0;
  std::string host, host_id, address, build, cpu, kernel;
  int cores = 0, allowed_cores = 0;
  double load = 0;
  std::int64_t memory_bytes = 0, shared_memory_free = 0, file_limit = 0;
  std::vector<std::string> limits;  // as MachineInfo has them
  std::vector<NetworkInterface> interfaces;
  std::vector<std::string>
      gpus;              // as CUDA sees them, else as the driver's table names them; empty: none
  std::string gpu_note;  // versions of CUDA and the driver, or why CUDA sees none
  std::string nccl;      // version and path of the library, or what is missing
  std::string folder_fault;  // of --save-dir; "": fine or not asked
};
HostFacts host_facts(const backends::Group& group);
std::string to_json(const HostFacts& facts);
HostFacts facts_from_json(const std::string& text);  // throws io::DataError

// Collective: everybody writes, renames and locks in `folder`, and sees the others' files. What
// fails on this rank, or "".
std::string check_folder(const std::string& folder, backends::Communicator& communicator);

// A pair of ranks, a < b, over the backend that training would use between them.
struct Link {
  int a = 0, b = 0;
  std::string backend;
  bool one_host = false;  // no cable between the two, only memory and cores that they share with
                          // everybody else there
  double latency_us = 0, best_us = 0;      // half of a ping-pong of 8 bytes: median, shortest
  double forward_gb_s = 0, back_gb_s = 0;  // a to b, b to a; the best of several transfers
  double bytes = 0;                        // of such a transfer
  double clock_offset_s = 0,
         clock_error_s = 0;  // b's clock minus a's; known to within half of the shortest round trip
  double slower_gb_s() const { return forward_gb_s < back_gb_s ? forward_gb_s : back_gb_s; }
};
// Collective: all pairs, disjoint ones at the same time; what looks bad once more, alone, the
// better result counts. Every rank gets all links, by (a, b). Throws PeerError naming the pair
// whose link failed.
std::vector<Link> measure_links(backends::Group& group, backends::Communicator& control);

struct Finding {
  std::string text;
  std::vector<int> ranks;
  bool bad = true;  // else worth knowing only
};
// A link is compared with the better quarter of those of its backend: half of all links may be bad
// and still be found, as when one of three hosts is slow. Bad: its shortest ping is more than 3
// times theirs (and 100 us more), or it carries less than a third. Worth a note only, for a busy
// host does that too: a median like that with a good shortest ping, and whatever is between ranks
// of one host.
std::vector<Finding> judge_links(const std::vector<Link>& links, int ranks);
std::vector<std::size_t> suspicious_links(const std::vector<Link>& links);  // indices
std::vector<Finding> judge_hosts(const std::vector<HostFacts>& hosts);
std::vector<Finding> judge_clocks(const std::vector<Link>& links);

struct DoctorReport {
  std::string when, build, backend, backend_reason, rendezvous_address;
  std::vector<HostFacts> hosts;  // by rank
  std::vector<Link> links;
  std::vector<Finding> findings;
  bool healthy() const;
};
std::string to_text(const DoctorReport& report);
std::string to_json(const DoctorReport& report);

}  // namespace tools
