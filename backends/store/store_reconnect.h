// A member's attempts to connect to rank 0 again and to continue its session, without blocking.
#pragma once

#include <poll.h>

#include <chrono>
#include <memory>
#include <string>

#include "backends/store/protocol/member_machine.h"
#include "backends/store/protocol/session_machine.h"
#include "backends/store/tcp_socket.h"

namespace backends {

class StoreReconnect {
 public:
  // `server`: the numeric address of rank 0's store. `hello`: the last one that was sent.
  StoreReconnect(Endpoint server, Secret secret, Hello hello);

  // Starts an attempt if `member` wants one, and ends one that is not wanted any more.
  void update(MemberMachine& member);
  pollfd polled() const;  // ignored by poll() if no attempt is under way
  // After poll(). Returns the new connection when rank 0 has accepted it, else an empty one.
  // Calls the matching input of `member`.
  [[nodiscard]] Socket serve(short revents, MemberMachine& member);

 private:
  void start(MemberMachine& member);
  void end(MemberMachine& member);
  void on_connected(MemberMachine& member);
  void receive(MemberMachine& member);
  [[nodiscard]] bool send_output();

  const Endpoint server_;
  const Secret secret_;
  Hello hello_;
  Socket socket_;
  std::unique_ptr<SessionMachine> session_;  // of a connected attempt
  std::string out_;
  Deadline until_{}, next_{};
};

}  // namespace backends
