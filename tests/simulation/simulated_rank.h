// A rank of a training in the virtual network: the store's real state machines, and a simulated
// training in which each step needs a message from every other rank.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "backends/store/protocol/member_machine.h"
#include "backends/store/protocol/server_machine.h"
#include "backends/store/protocol/session_machine.h"
#include "tests/simulation/virtual_network.h"

namespace simulation {

struct RankOptions {
  int rank = 0, world_size = 1;
  int number = rank;  // of its process in the network; another one where it was started again
  int heartbeat_ms = 1000;
  milliseconds rendezvous_timeout{60'000}, step_timeout{600'000};
  int steps = 20;
  backends::Settings settings = {{"--batch-size", "64"}};  // have to be equal
  bool mesh = true;  // false: no connections for data, and so no end of the first step
  milliseconds step_time{500};
  milliseconds starts_after{0};
  bool stall_abort = false;
  bool uses_all = false;      // each kind of request
  bool counts_steps = false;  // in the store, each once, and waits for what others set
  milliseconds link_patience{0};
  milliseconds data_patience{0};  // in which a broken connection for data would be restored
};

class SimulatedRank final : public Process {
 public:
  SimulatedRank(VirtualNetwork& network, RankOptions options);

  void opened(ConnectionId id, int from, Port port) override;
  void received(ConnectionId id, const std::string& bytes) override;
  void closed(ConnectionId id, const std::string& cause) override;
  void run_once() override;
  Time wake_at() const override;
  bool listens(Port port) const override {
    return port == Port::kStore ? server_ != nullptr : phase_ != Phase::kAway;  // data, probes
  }

  // Asks for an orderly stop, as SIGTERM does: at the next step, or alone 2 s later.
  void stop();

  // Ends the training with kReason, of which all are to hear, or without one.
  void give_up(bool says_why);
  static constexpr const char* kReason = "out of memory";

  // It lives, and says so, but does nothing, which it calls kStuck: the others wait for it.
  void get_stuck(Time until) { stuck_until_ = until; }
  static constexpr const char* kStuck = "stuck";

  // How it ended. Ranks are processes 0 to world_size - 1 of the network, but for those that were
  // started again.
  enum class End { kRunning, kFinished, kFailed, kNoGroup, kTimedOut, kStopped };
  struct Outcome {
    End end = End::kRunning;
    Time at{};
    std::string text;
    std::optional<int> culprit;  // of kFailed
    int steps = 0;               // that it has taken
    std::string group;           // nonce; "" if it was in none
    bool gave_up = false;        // and could say so
    // Of kNoGroup: those that have not joined, and those that had and left again, it believes.
    std::vector<int> missing, left;
    std::int64_t sum = 0;  // of kFinished: what it was told, when it added 1 to the others' sum
    std::string activity;  // that it has told rank 0
    std::vector<std::string> notices;    // that it was told of the group's getting on
    std::vector<std::string> wrong;      // what it was told: replies, who is in the group
    std::vector<std::string> outdated;   // what rank 0 knew of others: no fault where they are late
    std::vector<std::string> of_server;  // of rank 0: the notices of its store
  };
  const Outcome& outcome() const { return outcome_; }
  int times_connected_again() const { return continued_; }
  Time connected_again_at() const { return continued_at_; }
  bool takes_for_there(int rank) const;  // while it waits for the start
  bool has_trained() const { return !outcome_.group.empty(); }
  // As which such a rank comes to the store; and what its store is like.
  static backends::Hello hello_of(int rank, int world_size);
  static inline const std::string kSecret = std::string(32, 's');
  static constexpr int kPort = 29'500;
  bool has_started_group() const { return server_ && server_->has_started(); }  // of rank 0

 private:
  enum class Phase { kAway, kPause, kHandshake, kJoining, kTraining, kLeaving, kLingering, kGone };

  void connect_to_store();
  void on_session();
  void on_member();
  void start_training();
  void ask_store(backends::FrameType type, const std::string& key, const std::string& text,
                 const std::string& expected);
  void use_store();
  void check_replies();
  void train();
  void leave();
  void send_step(int step);
  bool has_all(int step) const;
  void check_peers();
  void check_statuses();
  int process_of(int rank) const;
  int rank_of(int process) const;
  backends::RankProgress progress() const;
  void end(End how, const std::string& text);
  void leave_network();
  void flush();
  void flush_server();
  void continue_session();
  void end_attempt();
  void start_probe(backends::LinkId link);
  void answer_questions();
  backends::Hello hello();

  VirtualNetwork& network_;
  const RankOptions options_;
  const backends::Secret secret_{kSecret, "the simulation"};
  const std::string process_;
  Phase phase_ = Phase::kAway;
  Time deadline_{}, pause_until_{}, handshake_until_{}, step_done_{}, step_deadline_{},
      verdict_until_{}, leave_until_{}, linger_until_{}, stop_until_ = Time::max(), stuck_until_{},
                                                         step_sent_at_{};
  milliseconds pause_{20};
  std::uint32_t attempt_ = 0;
  ConnectionId store_ = 0;
  std::unique_ptr<backends::ServerMachine> server_;  // of rank 0
  std::unique_ptr<backends::SessionMachine> session_;
  std::unique_ptr<backends::MemberMachine> member_;
  std::set<ConnectionId> served_;          // connections to server_
  std::map<ConnectionId, int> served_by_;  // the process of each, also of one that has ended
  std::map<ConnectionId, int> links_;      // to processes of other ranks, for data
  std::map<int, ConnectionId> link_to_;    // by process
  std::map<int, int> received_steps_;      // by process: how many it has sent
  std::optional<int> broken_link_;         // the process to which a data connection broke
  std::vector<int> processes_;             // by rank, once the group has started
  int step_ = 0;
  std::optional<std::uint32_t> sum_request_;
  std::map<std::uint32_t, std::string> expected_;  // replies, by request
  // An attempt to continue the session, and probes of members, by connection.
  ConnectionId attempt_store_ = 0;
  std::unique_ptr<backends::SessionMachine> again_;
  Time attempt_until_{}, next_attempt_{};
  int continued_ = 0;
  Time continued_at_{};
  std::map<ConnectionId, backends::LinkId> probes_;
  std::map<ConnectionId, int> questions_;  // probes that rank 0 asks for: of which rank
  bool gives_up_ = false, gives_no_reason_ = false;
  bool step_sent_ = false, stop_wanted_ = false, stop_agreed_ = false;
  Outcome outcome_;
};

}  // namespace simulation
