// A process of an elastic job in the virtual network: the real MembershipMachine, and a
// simulated training in which each step needs a message from every member of the generation.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "backends/membership/membership_machine.h"
#include "tests/simulation/elastic_world.h"
#include "tests/simulation/virtual_network.h"

namespace simulation {

struct ElasticOptions {
  int host = 0;
  int hint = -1;
  bool restarted = false;
  milliseconds starts_after{0}, step_time{1000};
};

class ElasticProcess final : public Process {
 public:
  ElasticProcess(ElasticWorld& world, int number, ElasticOptions options);
  ~ElasticProcess() override;

  void opened(ConnectionId id, int from, Port port) override;
  void received(ConnectionId id, const std::string& bytes) override;
  void closed(ConnectionId id, const std::string& cause) override;
  void run_once() override;
  Time wake_at() const override;
  bool listens(Port) const override { return phase_ != Phase::kAway; }

  void ask_to_leave() { is_asked_to_leave_ = true; }
  void let_clock_jump(milliseconds by) { clock_ahead_ += by; }
  void die_behind(int points) { points_left_ = points; }  // see ElasticWorld; 0: it does not

  enum class End { kRunning, kFinished, kWithdrew, kFailed };
  End end() const { return end_; }
  const std::string& why() const { return why_; }
  bool progress_was_possible() const { return progress_was_possible_; }  // when it failed
  const Steps& steps() const { return steps_; }
  Time::duration longest_step() const { return longest_step_; }  // from the step before
  const ElasticOptions& options() const { return options_; }
  int number() const { return number_; }
  bool is_alive() const { return world_.network.is_running(number_); }  // maybe paused
  bool has_started() const { return phase_ != Phase::kAway; }
  // What others have to know of it; without its identity, which it may change.
  backends::Member description() const;
  bool has_been(const backends::MemberId& id) const;
  bool has_been_member() const { return has_been_member_; }

 private:
  enum class Phase { kAway, kSeeking, kGathering, kTraining, kLeaving, kGone };
  struct HostAcceptor;

  Time clock() const { return network_.now() + clock_ahead_; }
  void pass_point();
  ConnectionId connect(int to, Port port);
  void send(ConnectionId connection, std::string bytes);

  void act();
  void start();
  void hand_out();
  void send_to(int process, const backends::MembershipMessage& message);
  void serve_endpoint();
  void enter();
  void leave_group();
  void gather();
  bool somebody_had_the_state() const;
  void train();
  void believe();
  void finish(End end, const std::string& why);
  void broadcast_text(const std::string& text);
  const std::string* next_from(std::size_t rank) const;

  ElasticWorld& world_;
  VirtualNetwork& network_;
  const int number_;
  const ElasticOptions options_;
  Phase phase_ = Phase::kAway;
  Time starts_at_{}, next_claim_{};
  std::unique_ptr<HostAcceptor> acceptor_;
  std::unique_ptr<backends::MembershipMachine> machine_;
  bool is_asked_to_leave_ = false, withdraws_ = false;
  milliseconds clock_ahead_{0};
  int points_left_ = 0;
  bool dies_ = false;  // at the end of this run_once(), without further effects on others
  std::map<int, ConnectionId> agents_;  // outgoing, by process
  std::map<ConnectionId, backends::FrameParser> agents_in_;

  // The generation's group.
  backends::RosterPtr view_;
  std::size_t rank_ = 0;
  bool is_new_member_ = true, has_been_member_ = false;
  bool begins_again_ = false, is_needless_ = false;  // although somebody has a state
  bool group_broken_ = false;
  std::vector<ConnectionId> data_out_;                            // by rank
  std::map<ConnectionId, std::uint64_t> data_in_;                 // the generation, once known
  using Inbox = std::map<std::size_t, std::vector<std::string>>;  // by rank
  std::map<std::uint64_t, Inbox> inboxes_;                        // by generation
  std::size_t messages_ = 0;                                      // of each rank that were taken
  bool sent_ = false, changes_ = false, last_ = false;            // of the step
  int leavers_ = 0;                                               // likewise
  Time step_until_{}, stepped_at_{};
  Time::duration longest_step_{};
  backends::RosterPtr believed_;                      // the newest that it has known
  backends::MemberId believed_as_;                    // who it was then
  std::set<backends::MemberId> known_as_, left_out_;  // of its own, as a member and no longer

  Steps steps_;
  backends::MemberId stepped_as_;  // who it was when it took its last step
  bool has_state_ = false;
  End end_ = End::kRunning;
  std::string why_;
  bool progress_was_possible_ = false;
};

// Whether the processes that live could go on, if there were no more faults.
bool can_progress(const ElasticWorld& world);

}  // namespace simulation
