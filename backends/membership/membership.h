// Elastic membership: a job continues while enough ranks are alive, and accepts new ranks while it
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
  // init_method names the join endpoint, at which joining ranks find the job: tcp://HOST:PORT or
  // file:///PATH. rank is a hint for the order, -1: none. listen.fd is the endpoint's socket if the
  // launcher has opened it; several processes of a host may share it.
  GroupOptions group;
  int min_ranks = 1, max_ranks = 1;  // number of ranks
  int last_call_ms = 3000;  // from the last arrival to the bootstrap with fewer than `max_ranks`
};

// Returns the job name of the AcceptorFile in which a process with these options stores its host's
// votes.
std::string acceptor_job(const GroupOptions& group);

struct View {
  std::uint64_t generation = 0;
  int rank = 0, world_size = 1;  // for this process
  // This process was not a member of the previous generation: its state is not used.
  bool is_new_member = true;
  std::vector<PeerInfo> members;  // by rank
  // Since the previous generation; a new member has itself in `joined`.
  std::vector<PeerInfo> left, joined;
};

// The job's training has finished on all ranks, and the other ranks have left.
class JobEnded : public PeerError {
 public:
  using PeerError::PeerError;
};

// Owns one thread, which communicates with the threads of other members while this process
// computes.
class Membership {
 public:
  // Opens the endpoints at which others find this process. Throws ConfigurationError,
  // AuthenticationError, PeerError.
  explicit Membership(MembershipOptions options);
  // Without leave(), the others consider this process dead.
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // Waits until this process is a member. Throws CancelledError, PeerError at the rendezvous
  // timeout, MismatchError and AuthenticationError if it does not fit the job, JobEnded.
  View first_view();
  // Does the same for the generation after the last view, whose group this process has left.
  View next_view();

  // Reports a completed step in the group of this view: from then on this process has the job's
  // state, and the others could continue from it. Any thread, cheap.
  void took_step(const View& view);
  // Returns true if a process waits to join, and there is room. Any thread, cheap.
  bool join_wanted() const;
  // Returns why the present view cannot continue: a member is gone, or has asked for the next one.
  // Any thread, cheap.
  std::optional<std::string> broken() const;
  // Returns options of join_group() for the group of this view, which is also canceled if the view
  // is broken.
  GroupOptions group_options(const View& view) const;

  // Ends in order: training has finished on all ranks.
  void leave();
  // Withdraws this process, while the others continue. Returns when they have agreed on that.
  void withdraw();

 private:
  class Agent;
  std::unique_ptr<Agent> agent_;
};

}  // namespace backends
