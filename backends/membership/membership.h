// Elastic membership: a job goes on as long as enough ranks live, and takes in new ones while it
// runs. It is a sequence of generations, each an ordinary group of the members of one view
// (join_group() with group_options()); the processes agree on the views.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend_error.h"
#include "backends/group.h"

namespace backends {

struct MembershipOptions {
  // init_method names the door, where newcomers find the job: tcp://HOST:PORT or file:///PATH; rank
  // is a hint for the order, -1 is none; listen.fd is the door's socket, if it is handed over,
  // which several processes of a host may share.
  GroupOptions group;
  int least = 1, most = 1;  // ranks
  int last_call_ms = 3000;  // from the last arrival to a founding with fewer than `most`
};

// The job of AcceptorFile in which a process with these options keeps what its host has agreed to.
std::string register_job(const GroupOptions& group);

struct View {
  std::uint64_t generation = 0;
  int rank = 0, world_size = 1;  // of this process
  // This process was not a member of the generation before: its state does not count.
  bool fresh = true;
  std::vector<PeerInfo> members;       // by rank
  std::vector<PeerInfo> left, joined;  // since the generation before; if fresh: itself has joined
};

// The job's training has finished on all ranks, and others have left.
class JobEnded : public PeerError {
 public:
  using PeerError::PeerError;
};

// Owns one thread, which talks to the other members' while this process computes.
class Membership {
 public:
  // Opens what others find this process by. Throws ConfigurationError, AuthenticationError,
  // PeerError.
  explicit Membership(MembershipOptions options);
  // Without leave(), the others take this process for dead.
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // Waits until this process is a member. Throws CancelledError, PeerError at the rendezvous
  // timeout, MismatchError and AuthenticationError where it does not fit the job, JobEnded.
  View first_view();
  // The same for the generation behind the last view, whose group this process has left.
  View next_view();

  // A step has been taken in the group of this view: from then on this process has the job's state,
  // and counts as one that the others could go on from. Any thread, cheap.
  void took_step(const View& view);
  // Somebody waits to be taken in, and there is room. Any thread, cheap.
  bool join_wanted() const;
  // Why the present view cannot go on: a member is gone, or has asked for the next one. Any thread,
  // cheap.
  std::optional<std::string> broken() const;
  // For join_group(): the group of this view. It is cancelled when the view is broken, too.
  GroupOptions group_options(const View& view) const;

  // Orderly end: training has finished on all ranks.
  void leave();
  // This process leaves, and the others go on. Returns when they have agreed on that.
  void part();

 private:
  class Agent;
  std::unique_ptr<Agent> agent_;
};

}  // namespace backends
