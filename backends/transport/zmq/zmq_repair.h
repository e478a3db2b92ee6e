// Restores broken connections of ZmqLinks, in a thread of their own.
//
// The connector opens a new socket for each attempt, and the listener takes the first greeting of
// an attempt that is newer. Each side counts the received bytes of whole messages, and sends the
// others again.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "backends/transport/zmq/zmq_ends.h"

namespace backends {

class ZmqLinks::Repair {
 public:
  // After the set-up. Both outlive this.
  Repair(ZmqLinks& links, Ends& ends);
  // Until `stop` or an abort: restores broken connections for which that succeeds within the
  // patience.
  void run(const std::stop_token& stop);

 private:
  struct Look {
    Socket probe;         // connector: a refusal means that the listener's process has ended
    bool silent = false;  // the kernel has no answer to what it sends
  };
  void check_links();
  void check_down(int peer);
  void look_at(int peer);
  void begin(int peer);
  void probe(int peer);
  void serve(int peer);
  void resume(int peer, const Ends::Greeting& theirs);
  void send_again(int peer, std::uint64_t position);
  void report_break(int peer, bool in_any_case);
  void give_up(int peer, const std::string& why);
  void rest(const std::stop_token& stop);
  bool is_down(int peer) const { return links_.link(peer).state == State::kDown; }
  std::string name_of(int peer) const {
    return "rank " + std::to_string(context_.group_rank(peer));
  }

  ZmqLinks& links_;
  Ends& ends_;
  const BackendContext& context_;
  std::vector<Look> looks_;  // by peer
};

}  // namespace backends
