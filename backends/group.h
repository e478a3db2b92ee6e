// Joins a group: goes from a resolved identity (rank, world size, rendezvous address) to
// communicators, with failure detection.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/communicator.h"
#include "backends/device_communicator.h"
#include "backends/secret.h"

namespace backends {

class Messages;  // transport/socket/messages.h

// The relay that joins connections of ranks that cannot reach each other.
struct RelayPlace {
  std::string host;  // a name, an address, or kRankZero: rank 0's process relays
  int port = 0;
  static constexpr const char* kRankZero = "rank0";
  bool is_rank_zero() const { return host == kRankZero; }
};

// The address and ports of this rank.
struct ListenOptions {
  int port_window = 1;    // ports from the given one on among which rank 0 may listen; > 1 needs a
                          // job id
  std::string interface;  // "": the one that routes to the master
  int fd = -1;  // rank 0: a bound, listening socket handed over by the launcher, owned from here
                // on; -1: bind here
  std::optional<RelayPlace> relay = {};  // for ranks that cannot connect to this one, or it to them
};

// The properties that the ranks of a job share; parts of the handshake.
struct JobOptions {
  std::string id, build;  // "" allowed
  std::string secret;     // hexadecimal, 32 digits or more; "": ENGINE_SECRET_FILE, ENGINE_SECRET,
                          // ... (secret.h)
  // Names and values that must be equal on all ranks: a difference is a MismatchError on all of
  // them, naming both values and both ranks. At most 64 KiB.
  std::vector<std::pair<std::string, std::string>> settings;
};

// A rank that has been in one collective for so long is reported through `notice`, on rank 0 and on
// the ranks concerned: who waits, who is elsewhere, which links move nothing.
struct StallOptions {
  int after_ms = 10'000;  // 0: never
  bool abort = false;     // and ends the group
};

// Shared memory among the ranks of one host, before the exchange between hosts.
enum class LocalStage { kAuto, kShm, kOff };  // kAuto: where the backend is "auto"

// The connections between ranks.
struct LinkOptions {
  int streams = 1;  // per peer, where the backend stripes
  Encryption encryption = Encryption::kAuto;
  // The time in which a broken one is restored; 0: a break is an error.
  int patience_ms = 30'000;
};

// The identity of this process and the rendezvous; made by resolve_identity() or by the launcher.
struct GroupOptions {
  std::string init_method = "env://";  // env://, tcp://HOST:PORT, file:///PATH
  int rank = 0, world_size = 1, local_rank = 0;
  // Ranks on this host, if known. Equal to world_size: rank 0 listens on loopback (file://).
  std::optional<int> local_world_size = {};
  std::string backend =
      "auto";  // "auto", a name of list_backends(), "checked:A,B" or the path of a plug-in
  LocalStage local_stage = LocalStage::kAuto;
  LinkOptions links = {};
  ListenOptions listen = {};
  JobOptions job = {};
  int rendezvous_timeout_ms = 300'000;
  int timeout_ms = 600'000;  // deadline of every collective
  int heartbeat_ms = 1000;
  StallOptions stall = {};
  std::string host_id = {};  // equal for ranks of one host; "": as in host_identity.h
  bool restarted = false;    // after a failure: wait if the previous group is still ending
  std::vector<std::string> history = {};  // of an elastic job's ranks, for flight_record()
  // Asked while the group forms and its ranks connect, one call at a time, maybe from another
  // thread; true ends that with CancelledError.
  std::function<bool()> cancelled = {};
  // Progress lines for the user, from any thread; may be empty.
  std::function<void(const std::string&)> notice;
};

struct PeerInfo {
  int rank = 0;
  std::string host;
  int pid = 0;
  std::string host_id = {};  // equal for ranks of one host
};

// A communicator that differs from the group's own choice.
struct CommunicatorRequest {
  std::string backend = {};       // "": the group's
  std::vector<int> members = {};  // ranks of the group, ascending; empty: all
};

// Sent with a rank's heartbeats: the collective that it has been in for the longest time.
struct RankProgress {
  std::int64_t waiting_ms = 0;  // since the call began; 0: in no call
  std::string call;             // "all_reduce sum of 7 f32 (collective 3)"; "" if just begun
  std::string links;            // "nothing received from rank 1 for 12.0 s"; "": unknown
};

// The activity of a rank, as rank 0 knows it.
struct RankStatus {
  int rank = 0;
  std::string activity;  // the text of its set_activity(); "": unknown
  RankProgress progress;
  bool connected = true;  // true if connected to rank 0
};

// One job's membership. Destroy communicators before the group.
// structure: the one interface of a group to the program; a part of it alone has no user
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual const std::vector<PeerInfo>& peers() const = 0;
  virtual std::string backend() const = 0;         // the chosen one: "gloo", "shm", "shm+gloo"
  virtual std::string backend_reason() const = 0;  // "auto: all ranks are on one host"
  // For reports: the address of the rendezvous ("10.0.0.1:29500"), and the one at which others
  // reach this rank. "" if nothing listens.
  virtual std::string rendezvous_address() const { return {}; }
  virtual std::string address() const { return {}; }

  // Makes another communicator. Collective over its members: each of them calls it in the same
  // order.
  virtual std::unique_ptr<Communicator> make_communicator(const CommunicatorRequest& request) = 0;
  std::unique_ptr<Communicator> make_communicator() { return make_communicator({}); }
  // Makes a communicator for the calling thread's CUDA device: nccl, staged, staged:NAME or auto
  // (see device_factory.h). Collective as above. If the group's backend is nccl, host memory needs
  // make_communicator({"auto"}).
  virtual std::unique_ptr<DeviceCommunicator> make_device_communicator(
      const CommunicatorRequest& request);
  std::unique_ptr<DeviceCommunicator> make_device_communicator() {
    return make_device_communicator({});
  }
  // Divides the sums of large all-reduces among the ranks by these weights, one for each rank of
  // the group, in communicators of all ranks that are made later; empty: equally, as at first.
  // Every rank sets the same weights at the same place among its calls. The bits do not depend on
  // them. Has no effect within a host and in backends that sum in another way (nccl, plug-ins).
  virtual void divide_sums(const std::vector<std::uint32_t>& /*weights*/) {}
  // Makes an exchange of messages between two ranks each, over connections of its own. Collective
  // over `members` (ascending; empty: all) as above. Only for ranks that are processes, and two or
  // more: others get a ConfigurationError.
  virtual std::unique_ptr<Messages> make_messages(const std::vector<int>& members);

  // Returns the last collectives of this rank as JSON, for `engine inspect --flight`
  // (flight_recorder.h). Any thread.
  virtual std::string flight_record(const std::string& reason) const = 0;

  // Sets this rank's activity ("step 120, all_reduce"), which the other ranks' messages name if it
  // dies. Cheap; any thread.
  virtual void set_activity(std::string_view activity) noexcept = 0;
  // Returns the status of all ranks on rank 0; empty on other ranks and if nothing is known. Any
  // thread.
  virtual std::vector<RankStatus> statuses() const { return {}; }
  // On rank 0: sends the job's status to observers (store/status_feed.h). Any thread.
  virtual void publish_status(const std::string& /*text*/) {}
  // Throws the first known failure: MismatchError if calls differ, else PeerError ("rank 1 (host
  // n7, pid 42) died: connection closed; last: step 120").
  virtual void check() = 0;
  // Aborts this rank's communicators, with `why`, if one of its collectives has been running for
  // `time`; returns true if it did. Any thread.
  virtual bool interrupt(std::chrono::milliseconds /*time*/, const std::string& /*why*/) {
    return false;
  }
  // Announces that this rank is going to end before the others, which then end too and report why.
  // Does nothing after a failure that all ranks know.
  virtual void abandon(const std::string& /*why*/) noexcept {}
  // Ends the membership in order, so that the end of this process is not taken for a failure. Waits
  // until all ranks have left or one has failed, so that failures of ranks that still work are
  // detected: at most as long as a collective may take, and a few seconds if `in_a_hurry` (polled)
  // returns true.
  virtual void leave(const std::function<bool()>& in_a_hurry) = 0;
  void leave() { leave({}); }
};

// Blocks until all ranks have joined; names the missing ranks through `notice` every 5 s. Throws
// PeerError that names them at the rendezvous timeout.
// Defined in backends/compose/process_group.cc.
std::unique_ptr<Group> join_group(const GroupOptions& options);

// Makes a group whose ranks are threads of this process (backend inproc). Element r is for rank r.
std::vector<std::unique_ptr<Group>> make_inproc_groups(
    int world_size, int timeout_ms, std::function<void(const std::string&)> notice = {});

// A backend of this build: its name, and why it is not usable on this machine if it is not.
struct BackendInfo {
  std::string name;
  bool usable = false;
  bool joins_hosts = false;  // false: joins only ranks of one host, or threads
  std::string note;
  bool device_memory = false;  // true if its calls take GPU memory
};
std::vector<BackendInfo> list_backends();

}  // namespace backends
