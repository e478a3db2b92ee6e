// Collects and checks facts for `engine doctor`: each rank's host, and measured links between all
// pairs of ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/group.h"
#include "tools/launch/group/link_measure.h"

namespace tools {

struct NetworkInterface {
  std::string name, address;
  int mtu = 0;
  std::int64_t speed_mbit = 0;  // 0: unknown, e.g. for virtual interfaces
};

// Libraries that are loaded at run time: version and path, or what is missing.
struct HostLibraries {
  std::string nccl, mpi;
};

// The facts of one rank's host. Sent between ranks as JSON.
struct HostFacts {
  int rank = 0, pid = 0;
  std::string host, host_id, address, build, cpu, kernel;
  int cores = 0, allowed_cores = 0;
  double load = 0;
  std::int64_t memory_bytes = 0, shared_memory_free = 0, file_limit = 0;
  std::vector<std::string> limits;  // same as in MachineInfo
  std::vector<NetworkInterface> interfaces;
  // The GPUs that CUDA finds, else those that the driver's table names; empty: none.
  std::vector<std::string> gpus;
  std::string gpu_note;  // versions of CUDA and the driver, or why CUDA finds no GPU
  HostLibraries libraries;
  std::string folder_fault;  // problem with --save-dir; "": none, or not checked

  // Returns false for a host whose rank could not be asked: only names and numbers are known.
  bool is_examined() const { return cores > 0; }
};
HostFacts host_facts(const backends::Group& group);
std::string to_json(const HostFacts& facts);
HostFacts facts_from_json(const std::string& text);  // throws io::DataError

// Collective: every rank writes, renames and locks in `folder`, and checks the others' files.
// Returns what fails on this rank, or "".
std::string check_folder(const std::string& folder, backends::Communicator& communicator);

// Collective: measures all pairs, disjoint ones at the same time. A suspicious pair is measured
// again, alone, and the better result counts. Every rank gets all links, by (a, b). Throws
// PeerError that names the pair whose link failed.
std::vector<Link> measure_links(backends::Group& group, backends::Communicator& control);

struct Finding {
  std::string text;
  std::vector<int> ranks;
  bool bad = true;  // false: only information
};
// Compares each link with the better quarter of the links of its backend: half of all links may be
// bad and still be found, e.g. if one of three hosts is slow. A link is bad if its shortest ping is
// more than 3 times theirs (and 100 us more), or if its throughput is less than a third. A median
// like that with a good shortest ping, and any such difference between ranks of one host, are only
// information, because a busy host has the same effect.
std::vector<Finding> diagnose_links(const std::vector<Link>& links, int ranks);
std::vector<std::size_t> suspicious_links(const std::vector<Link>& links);  // indices
std::vector<Finding> diagnose_hosts(const std::vector<HostFacts>& hosts);
std::vector<Finding> diagnose_clocks(const std::vector<Link>& links);

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
