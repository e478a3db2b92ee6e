// The store's server, in rank 0: authenticates ranks, starts the group when all have joined, keeps
// the keys, and reports failures of members to the others. One thread. Unauthenticated connections
// are limited to 64, with 1 KiB and 5 s each.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/store/store_connection.h"

namespace backends {

struct StoreServerOptions {
  Socket listener;
  Secret secret;
  Hello job;  // what a member must agree with: world_size, job, build, settings; host and pid are
              // rank 0's
  int heartbeat_ms = 1000;
  int stall_after_ms = 10'000;  // 0: stalls are not looked for
  bool stall_abort = false;     // a stall is a failure of the rank for which the others wait
  std::function<void(const std::string&)>
      notice;  // refused connections, stalls; called from the server's thread; may be empty
};

class StoreServer {
 public:
  explicit StoreServer(StoreServerOptions options);
  // Waits up to 2 s until the members have closed their connections and, after a mismatch, until
  // the missing ranks have been told of it.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  Endpoint endpoint() const { return endpoint_; }
  // Gives up a group that has not started: every member's join throws this error.
  void give_up(RefusalKind kind, const std::string& text);
  // The last refused connection, for the message of a timeout; "" when there was none.
  std::string last_refusal() const;

 private:
  using Connection = StoreConnection;
  using Clock = std::chrono::steady_clock;

  void run();
  int poll_timeout() const;
  void wake();
  void take_commands();
  void accept_all();
  void read_from(Connection& c);
  void sweep(Clock::time_point now);

  void handle(Connection& c, const Frame& frame);  // throws MalformedFrame
  void on_hello(Connection& c, const Frame& frame);
  void on_proof(Connection& c, const Frame& frame);
  void on_settings(Connection& c, const Frame& frame);
  void decide(Connection& c);  // on membership, once all that matters is known
  void refuse(Connection& c, RefusalKind kind, const std::string& text);
  // On job, world and build; `kind` is kMismatch where there is none.
  std::string disagreement(const Hello& hello, RefusalKind& kind) const;
  // "" if the rank is free, or held by the same process, which may reconnect until it has
  // acknowledged the start of the group.
  std::string disagreement_on_rank(const Hello& hello, RefusalKind& kind) const;
  void add_member(Connection& c);

  // Members (store_members.cc).
  bool is_superseded(const Hello& hello) const;
  bool awaits_reconnection() const;
  void handle_member(Connection& c, const Frame& frame);
  void on_joined();
  void on_lost(Connection& c);
  void expire_disconnected(Clock::time_point now, bool paused);
  void declare_failure(const Connection& c, const std::string& cause);
  void declare_failure(const Hello& who, const std::string& activity, const std::string& cause);
  void tell_silent(Connection& c);
  void check_all_left();
  void fail_group(RefusalKind kind, const std::string& text);
  void broadcast(const std::string& frame, const Connection* except = nullptr);
  std::vector<int> missing() const;  // without those that have left again
  std::string progress() const;      // the frame
  void send_heartbeat(Clock::time_point now);
  void check_stall(Clock::time_point now);

  // Keys (store_members.cc).
  void set(const std::string& key, std::string value);
  void send_reply(Connection& c, std::uint32_t request, const std::string& value);

  StoreServerOptions options_;
  Endpoint endpoint_;
  Socket wake_;
  std::list<Connection> connections_;
  std::vector<Connection*> members_;  // by rank
  // A rank of the started group whose connection broke before it acknowledged the start. It is told
  // when it reconnects; if it does not, it is declared dead.
  struct Disconnected {
    Hello hello;
    std::string activity, cause;
    Deadline until{};
    bool given_up = false;
  };
  std::map<int, Disconnected> disconnected_;  // by rank
  // Sent to a rank that reconnects after the start, and after the first failure.
  std::string start_frame_, failure_frame_;
  bool started_ = false, failed_ = false, all_left_ = false;
  bool reported_shortage_ = false;  // of open files or memory
  std::string fatal_frame_;         // sent to ranks that connect after the group was given up
  std::set<int> awaited_;           // ranks that are still to be told of a mismatch
  std::set<int> left_early_;        // ranks that joined and left before the start
  StallWatch stall_watch_;
  Clock::time_point next_stall_check_{};
  std::map<std::string, std::string> values_;
  std::map<std::string, std::vector<std::pair<Connection*, std::uint32_t>>> waiters_;
  Clock::time_point next_heartbeat_{}, last_turn_{}, next_refusal_notice_{}, accept_again_{};

  mutable std::mutex mutex_;  // guards the following
  std::optional<std::pair<RefusalKind, std::string>> give_up_;
  std::string last_refusal_;
  bool stopping_ = false;
  Deadline stop_deadline_{};

  std::thread thread_;
};

}  // namespace backends
