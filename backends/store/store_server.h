// The store's server, in rank 0: a ServerMachine on sockets, with one thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/store/connection_acceptor.h"
#include "backends/store/member_probes.h"
#include "backends/store/protocol/server_machine.h"
#include "backends/store/store_connection.h"
#include "io/base/files/wake_event.h"

namespace backends {

struct StoreServerOptions {
  Socket listener;
  Secret secret;
  // The values that a member must match: world_size, job, build, settings; host and pid are rank
  // 0's.
  Hello job;
  int heartbeat_ms = 1000;
  int stall_after_ms = 10'000;  // 0: no stall detection
  bool stall_abort = false;     // a stall is a failure of the rank that the others wait for
  std::chrono::milliseconds link_patience{};  // for broken connections of members; 0: none
  // Reports of refused connections, stalls and broken connections; called from the server's thread;
  // may be empty.
  std::function<void(const std::string&)> notice;
};

class StoreServer {
 public:
  explicit StoreServer(StoreServerOptions options);
  // Waits up to 2 s until the members have closed their connections and, after a mismatch, until
  // the missing ranks have been notified of it.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  Endpoint endpoint() const { return endpoint_; }
  // Returns a new connection for rank 0, which does not leave this process: no failure or rule of
  // the network ends it. Throws PeerError if there is no file descriptor for it.
  [[nodiscard]] Socket connect_here();
  // Ends a group that has not started: every member's join throws this error.
  void give_up(RefusalKind kind, const std::string& text);
  void set_status(const std::string& text);  // for observers (status_feed.h)
  // Returns the activities of the ranks; waits at most one second for the server's thread ({}
  // then).
  std::vector<RankStatus> statuses();
  // Returns the last refused connection, for the message of a timeout; "" if there was none.
  std::string last_refusal() const;

 private:
  void run();
  bool take_commands();  // returns false to stop
  void wait_and_read();
  void accept_all();
  void add(Socket socket, const std::string& peer);
  void carry_out();  // carries out the machine's actions
  void drop_closed();

  Socket listener_;
  std::function<void(const std::string&)> notice_;
  Endpoint endpoint_;
  const base::WakeEvent wake_;
  // The server's thread.
  ServerMachine machine_;
  std::map<LinkId, StoreConnection> connections_;
  MemberProbes probes_;
  LinkId next_link_ = 1;
  ConnectionAcceptor acceptor_;

  mutable std::mutex mutex_;  // guards the following
  std::condition_variable answered_;
  bool statuses_wanted_ = false;
  std::vector<RankStatus> statuses_;
  struct Commands {  // of other threads
    std::optional<std::pair<RefusalKind, std::string>> give_up;
    std::optional<std::string> status;
    std::vector<Socket> connections;  // of this process, to be served
  };
  Commands commands_;
  std::string last_refusal_;
  bool stopping_ = false;
  Deadline stop_deadline_{};

  std::thread thread_;
};

}  // namespace backends
