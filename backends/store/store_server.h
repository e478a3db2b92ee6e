// The meeting point, in rank 0: checks who comes, starts the group when all are here, keeps the
// keys, and tells the others when a member dies. One thread; strangers cost at most 64 descriptors
// of 1 KiB for 5 s each.
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
  Hello job;  // what a member must agree with: world_size, job, build, settings; host and pid of
              // rank 0
  int heartbeat_ms = 1000;
  std::function<void(const std::string&)>
      notice;  // refused connections; called from the server's thread; may be empty
};

class StoreServer {
 public:
  explicit StoreServer(StoreServerOptions options);
  // Waits up to 2 s for the members to close their connections, and after a mismatch for the others
  // to come and hear of it; then ends.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  Endpoint endpoint() const { return endpoint_; }
  // Ends a group that has not formed: every member's join throws that error.
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
  void greet(Connection& c, const Frame& frame);
  void admit(Connection& c, const Frame& frame);
  void take_settings(Connection& c, const Frame& frame);
  void judge(Connection& c);
  void refuse(Connection& c, RefusalKind kind, const std::string& text);
  // On job, world and build; `kind` is kMismatch where there is none.
  std::string disagreement(const Hello& hello, RefusalKind& kind) const;
  // "" where this rank is free, or held by the same process, which may come again until it has
  // heard that the group has started.
  std::string disagreement_on_rank(const Hello& hello, RefusalKind& kind) const;
  void welcome(Connection& c);

  // Members (store_members.cc).
  bool is_superseded(const Hello& hello) const;
  bool awaits_absent() const;
  void handle_member(Connection& c, const Frame& frame);
  void joined();
  void lost(Connection& c);
  void give_up_absent(Clock::time_point now, bool paused);
  void declare_failure(const Connection& c, const std::string& cause);
  void declare_failure(const Hello& who, const std::string& activity, const std::string& cause);
  void check_goodbyes();
  void fail_group(RefusalKind kind, const std::string& text);
  void broadcast(const std::string& frame, const Connection* except = nullptr);
  std::vector<int> missing() const;
  void beat(Clock::time_point now);

  // Keys (store_members.cc).
  void set(const std::string& key, std::string value);
  void answer(Connection& c, std::uint32_t request, const std::string& value);

  StoreServerOptions options_;
  Endpoint endpoint_;
  Socket wake_;
  std::list<Connection> connections_;
  std::vector<Connection*> members_;  // by rank
  // A rank of the started group whose connection broke before it heard of the start. Its process
  // comes again, in which case it is told, or is given up.
  struct Absent {
    Hello hello;
    std::string activity, cause;
    Deadline until{};
    bool given_up = false;
  };
  std::map<int, Absent> absent_;  // by rank
  // What a rank is told that comes again after the start, and after the first failure.
  std::string start_frame_, failure_frame_;
  bool started_ = false, failed_ = false, parted_ = false;
  std::string fatal_frame_;  // sent to whoever comes after the group was given up
  std::set<int> awaited_;    // ranks that should still hear of a mismatch before the server ends
  std::map<std::string, std::string> values_;
  std::map<std::string, std::vector<std::pair<Connection*, std::uint32_t>>> waiters_;
  Clock::time_point next_beat_{}, last_turn_{}, next_refusal_notice_{}, accept_again_{};

  mutable std::mutex mutex_;  // guards the following
  std::optional<std::pair<RefusalKind, std::string>> give_up_;
  std::string last_refusal_;
  bool stopping_ = false;
  Deadline stop_deadline_{};

  std::thread thread_;
};

}  // namespace backends
