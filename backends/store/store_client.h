// A rank's connection to the store on rank 0, kept for the life of the group; it also reports
// failures of other ranks. Runs a MemberMachine on a socket, and on the next one if that breaks,
// with one thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "backends/group.h"
#include "backends/store.h"
#include "backends/store/connection_acceptor.h"
#include "backends/store/member_probes.h"
#include "backends/store/protocol/member_machine.h"
#include "backends/store/store_connection.h"
#include "backends/store/store_reconnect.h"
#include "backends/store/store_session.h"
#include "io/base/files/wake_event.h"

namespace backends {

struct StoreClientOptions {
  int rank = 0;
  int heartbeat_ms = 1000;
  std::string server;  // address of rank 0, for messages
  // Reports of stalls and broken connections; called from the store's thread; may be empty.
  std::function<void(const std::string&)> notice = {};
  // The time in which a broken connection is restored; 0: a break is a failure.
  std::chrono::milliseconds link_patience{};
  Secret secret = {};  // for a new connection
};

// Thread-safe. Its own thread sends heartbeats, receives, and records the first failure of a
// member.
class TcpStore : public Store {
 public:
  TcpStore(StoreSession session, StoreClientOptions options);
  // If the group has neither failed nor left, the others learn that this rank ends early.
  ~TcpStore() override;
  TcpStore(const TcpStore&) = delete;
  TcpStore& operator=(const TcpStore&) = delete;

  void set(std::string_view key, std::string_view value) override;
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override;
  std::int64_t add(std::string_view key, std::int64_t amount) override;
  void remove(std::string_view key) override;

  enum class StartState { kStarted, kWaiting, kDisconnected };
  // Waits until the group starts, the connection is lost or `until`. Throws the error with which
  // rank 0 ended the attempt.
  [[nodiscard]] StartState wait_for_start(Deadline until);
  MemberMachine::State state() const;
  // The address of the interface that routes to rank 0, when this rank joined. REQUIRES: not rank
  // 0, whose own connection has no address.
  const std::string& local_address() const { return local_address_; }

  // Asks rank 0 about a rank to which this one has no link for data. Returns "the link between rank
  // 1 and rank 2 is cut: rank 0 still reaches both"; "" if it does not know.
  std::string reach_text(int rank) noexcept;
  void set_activity(std::string_view activity) noexcept;
  // Called for the contents of each heartbeat, in the store's thread, until set to {}.
  void set_progress_source(std::function<RankProgress()> source);
  // Returns the first failure of a member that this rank knows of.
  std::optional<GroupFailure> failure() const;
  std::optional<GroupFailure> wait_for_failure(std::chrono::milliseconds timeout) const;
  // Calls `callback` once: from the store's thread, or at once if a failure is known. Calls
  // `on_departure` likewise for each rank that leaves while this one works, with its text of
  // leave().
  using OnDeparture = std::function<void(int rank, const std::string& calls)>;
  void on_failure(const std::function<void(const std::string&)>& callback,
                  OnDeparture on_departure = {});

  // Announces that this rank ends early: sends the reason to all, unless the group has failed
  // already.
  void abandon(const GroupFailure& why);
  // Waits until all ranks leave, at most `timeout`. Returns early if a member has failed, or if
  // `cancelled`, polled, returns true. `calls`: for ranks that still work.
  void leave(std::chrono::milliseconds timeout, const std::function<bool()>& cancelled = {},
             const std::string& calls = {});

 private:
  using Lock = std::unique_lock<std::mutex>;

  std::string request(FrameType type, std::string_view key,
                      const std::function<void(FrameWriter&)>& rest,
                      std::chrono::milliseconds timeout);
  void run();
  // One round of the thread. Returns false at its end.
  [[nodiscard]] bool poll_once();
  void reconnect(short revents);
  void send_heartbeat();
  void start_questions();
  void answer(int rank, ServerMachine::Probe result);
  void receive();
  void flush(const Lock& lock);
  void finish();  // sends the remaining data at the end of the thread
  // Called after each input of the machine: sends, and wakes waiting threads. Calls notices and the
  // callback without the lock.
  void react(Lock lock);

  const StoreClientOptions options_;
  const std::string local_address_;
  const base::WakeEvent wake_;

  std::mutex progress_mutex_;
  std::function<RankProgress()> progress_source_;  // guarded by it

  mutable std::mutex mutex_;  // guards the following
  mutable std::condition_variable changed_;
  StoreConnection connection_;   // only the thread receives from it, without the lock
  const Socket listener_;        // for probes; empty on rank 0 and without patience
  ConnectionAcceptor acceptor_;  // of the thread
  MemberProbes questions_;       // probes that rank 0 asks for; of the thread
  MemberMachine machine_;
  StoreReconnect reconnect_;
  bool stopping_ = false;
  std::function<void(const std::string&)> callback_;
  OnDeparture on_departure_;

  std::thread thread_;
};

}  // namespace backends
