// What a simulated process does: the loops that membership.cc and a training session run.
#include "tests/simulation/elastic_process.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>
#include <tuple>
#include <utility>

namespace simulation {
namespace {

using backends::MembershipMachine;
using backends::MembershipMessage;
using backends::RandomId;

constexpr auto kClaimInterval = milliseconds(1000);
constexpr auto kSeekingClaimInterval = milliseconds(200);

RandomId random_id(Dice& dice) {
  const auto half = [&] {
    return static_cast<std::uint64_t>(dice.between(1, std::int64_t{1} << 62));
  };
  const std::uint64_t high = half();
  return {high, half()};
}

// Messages between trainings: numbers of 8 bytes.
class NumberWriter {
 public:
  NumberWriter& add(std::uint64_t number) {
    text_.append(reinterpret_cast<const char*>(&number), sizeof number);
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

class NumberReader {
 public:
  explicit NumberReader(std::string_view text) : rest_(text) {}
  std::uint64_t next() {
    std::uint64_t number = 0;
    std::memcpy(&number, rest_.data(), sizeof number);
    rest_.remove_prefix(sizeof number);
    return number;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

std::string state_text(const Steps& steps, bool has_state) {
  NumberWriter out;
  out.add(has_state).add(steps.epoch).add(steps.taken.size());
  for (const Steps::Step& s : steps.taken) out.add(s.generation).add(s.last);
  return out.text();
}

bool read_state(const std::string& text, Steps& steps) {
  NumberReader in(text);
  const bool has_state = in.next() != 0;
  steps.epoch = in.next();
  steps.taken.resize(in.next());
  for (Steps::Step& s : steps.taken) {
    s.generation = in.next();
    s.last = in.next() != 0;
  }
  return has_state;
}

}  // namespace

// ---- The world.

int ElasticWorld::endpoint_holder() {
  std::erase_if(endpoint_holders, [&](int p) { return !network.is_running(p); });
  if (endpoint_holders.empty()) return -1;
  const auto which =
      network.dice().between(0, static_cast<std::int64_t>(endpoint_holders.size()) - 1);
  return *std::next(endpoint_holders.begin(), which);
}

bool ElasticWorld::claim_endpoint(int process) {
  if (endpoint_holder() >= 0) return false;
  endpoint_holders.insert(process);
  return true;
}

void ElasticWorld::believe(const backends::RosterPtr& roster) {
  if (!roster) return;
  const auto [known, is_new] = rosters_.try_emplace(roster->generation, roster);
  if (!is_new) {
    if (known->second->nonce != roster->nonce)
      wrong.push_back("two rosters of generation " + std::to_string(roster->generation));
    return;
  }
  // Those that the launcher has started come first, in its order.
  const auto order = [](const backends::Member& m) {
    return m.hint < 0 ? std::numeric_limits<int>::max() : m.hint;
  };
  if (roster->generation == 1 && !std::ranges::is_sorted(roster->members, {}, order))
    wrong.push_back("the first roster is not in the launcher's order");
  if (static_cast<int>(roster->members.size()) > max_ranks)
    wrong.push_back("more than MAX members");
  if (static_cast<int>(roster->members.size()) < min_ranks)
    wrong.push_back("fewer than MIN members");
  const bool anew = std::ranges::all_of(
      roster->members, [&](const backends::Member& m) { return m.since == roster->generation; });
  const auto before = rosters_.find(roster->generation - 1);
  epochs_[roster->generation] =
      anew || before == rosters_.end() ? roster->generation : epochs_.at(roster->generation - 1);
  if (before == rosters_.end()) {
    if (!anew) wrong.push_back("a roster whose base nobody has known");
    return;
  }
  for (const backends::Member& m : before->second->members) {
    const bool lives = std::ranges::any_of(
        processes, [&](const ElasticProcess* p) { return p->is_alive() && p->has_been(m.id); });
    if (anew && lives) wrong.push_back("the job was founded anew while a member lived");
    if (lives && !roster->has(m.id)) ++expulsions;
  }
  if (std::ranges::equal(roster->members, before->second->members, {}, &backends::Member::id,
                         &backends::Member::id))
    ++needless_changes;
}

void ElasticWorld::hold_firm(const Steps& steps, std::size_t step) {
  const Steps::Step& taken = steps.taken[step];
  const auto [known, is_new] = firm_.try_emplace({steps.epoch, step}, taken);
  if (!is_new && known->second != taken)
    wrong.push_back("step " + std::to_string(step) + " was taken by generation " +
                    std::to_string(known->second.generation) + " and again by generation " +
                    std::to_string(taken.generation));
}

bool can_progress(const ElasticWorld& world) {
  const auto lives = [&](const backends::Member& m) {
    return std::ranges::any_of(world.processes, [&](const ElasticProcess* p) {
      return p->is_alive() && p->has_been(m.id);
    });
  };
  const bool has_endpoint = std::ranges::any_of(world.processes, [](const ElasticProcess* p) {
    const bool serves = !p->options().restarted || p->has_been_member();
    return p->options().host == 0 && p->is_alive() && serves;
  });
  // A joining rank finds the others through the endpoint, or if its host's acceptor names a live
  // one.
  const auto is_found = [&](const ElasticProcess& p) {
    const auto& known = world.hosts[static_cast<std::size_t>(p.options().host)].state.decided;
    return p.has_been_member() || has_endpoint ||
           (known && std::ranges::any_of(known->members, lives));
  };
  int alive = 0;
  std::set<backends::AcceptorId> acceptors;
  bool has_founder = false;
  for (const ElasticProcess* p : world.processes) {
    if (!p->is_alive() || !p->has_started() || p->end() != ElasticProcess::End::kRunning) continue;
    if (!is_found(*p)) continue;
    ++alive;
    acceptors.insert(world.hosts[static_cast<std::size_t>(p->options().host)].acceptor);
    has_founder = has_founder || (p->options().host == 0 && !p->options().restarted);
  }
  if (alive < world.min_ranks) return false;
  // What only the dead have known cannot be gone on with.
  backends::RosterPtr newest;
  for (const ElasticWorld::Host& host : world.hosts) {
    const backends::RosterPtr& known = host.state.decided;
    if (acceptors.contains(host.acceptor) && generation_of(known) > generation_of(newest))
      newest = known;
  }
  if (!newest) return has_founder;
  // Joining ranks on a host that does not know the job find it only through the endpoint.
  for (const ElasticWorld::Host& host : world.hosts) {
    if (!host.state.decided) acceptors.erase(host.acceptor);
  }
  if (std::ranges::any_of(newest->members, lives)) {
    // Counted here once more: the machine's own count is what is tested.
    const auto votes = std::ranges::count_if(
        newest->members, [&](const backends::Member& m) { return acceptors.contains(m.acceptor); });
    const auto all = std::ssize(newest->members);
    return 2 * votes > all ||
           (2 * votes == all && acceptors.contains(newest->members.front().acceptor));
  }
  return has_founder && std::ranges::all_of(newest->members, [&](const auto& m) {
           return m.acceptor == world.hosts[0].acceptor;
         });
}

// ---- The host's acceptor, as this process uses it.

struct ElasticProcess::HostAcceptor final : backends::Acceptor {
  explicit HostAcceptor(ElasticProcess& owner) : process(owner) {}
  ElasticWorld::Host& host() const {
    return process.world_.hosts[static_cast<std::size_t>(process.options_.host)];
  }
  backends::AcceptorId id() const override { return host().acceptor; }
  bool update(const std::function<void(backends::AcceptorState&)>& change) override {
    ElasticWorld::Host& host = this->host();
    if (process.dies_) return false;
    if (host.held_by >= 0 && host.held_by != process.number_ &&
        process.network_.is_running(host.held_by))
      return false;
    backends::AcceptorState changed = host.state;
    change(changed);
    const bool dies = host.dies_in >= 0 && host.dies_in-- == 0;
    process.dies_ = process.dies_ || dies;
    if (changed != host.state) {
      if (host.is_full || (dies && host.is_torn)) return false;
      host.state = changed;
    }
    process.pass_point();
    return true;
  }
  void use_as(const backends::MemberId& id) override { ids.push_back(id); }
  bool is_used_by(const backends::MemberId& id) override {
    return std::ranges::any_of(process.world_.processes, [&](const ElasticProcess* p) {
      return p->options_.host == process.options_.host && p->is_alive() && p->has_been(id);
    });
  }

  ElasticProcess& process;
  std::vector<backends::MemberId> ids;
};

bool ElasticProcess::has_been(const backends::MemberId& id) const {
  return acceptor_ && std::ranges::find(acceptor_->ids, id) != acceptor_->ids.end();
}

// ---- The agent.

ElasticProcess::ElasticProcess(ElasticWorld& world, int number, ElasticOptions options)
    : world_(world),
      network_(world.network),
      number_(number),
      options_(options),
      starts_at_(world.network.now() + options.starts_after) {}

ElasticProcess::~ElasticProcess() = default;

Time ElasticProcess::wake_at() const {
  if (phase_ == Phase::kAway) return starts_at_;
  if (phase_ == Phase::kGone) return Time::max();
  Time next = machine_->next_tick();
  if (machine_->should_claim_endpoint() && options_.host == 0) next = std::min(next, next_claim_);
  next -= clock_ahead_;
  if (phase_ == Phase::kTraining && !sent_) next = std::min(next, step_until_);
  return next;
}

void ElasticProcess::start() {
  acceptor_ = std::make_unique<HostAcceptor>(*this);
  backends::Member self = description();
  self.id = random_id(network_.dice());
  machine_ = std::make_unique<MembershipMachine>(
      MembershipMachine::Options{.self = self,
                                 .min_ranks = world_.min_ranks,
                                 .max_ranks = world_.max_ranks,
                                 .heartbeat_ms = world_.heartbeat_ms,
                                 .give_up_ms = world_.give_up_ms,
                                 .may_bootstrap = !options_.restarted,
                                 .patience = world_.patience,
                                 .acceptor = acceptor_.get(),
                                 .random = [this] { return random_id(network_.dice()); }},
      clock());
  if (world_.is_shared_endpoint && options_.host == 0 && options_.hint >= 0 &&
      !options_.restarted) {
    world_.endpoint_holders.insert(number_);
    machine_->set_endpoint_held(true, clock());
  }
  machine_->want_view(clock());
  phase_ = Phase::kSeeking;
}

backends::Member ElasticProcess::description() const {
  const std::string host = std::to_string(options_.host);
  backends::Member m;
  m.host = "n" + host;
  m.host_id = "boot " + host;
  m.address = "10.0.0." + host;
  m.pid = 100 + number_;
  m.port = number_;
  m.store_port = 20'000 + number_;
  m.acceptor = world_.hosts[static_cast<std::size_t>(options_.host)].acceptor;
  m.hint = options_.hint;
  return m;
}

void ElasticProcess::pass_point() {
  if (++world_.points == world_.dies_at || (points_left_ > 0 && --points_left_ == 0)) dies_ = true;
}

ConnectionId ElasticProcess::connect(int to, Port port) {
  if (dies_) return 0;
  const ConnectionId connection = network_.connect(number_, to, port);
  pass_point();
  return connection;
}

void ElasticProcess::send(ConnectionId connection, std::string bytes) {
  if (dies_ || connection == 0) return;
  network_.send(connection, std::move(bytes));
  pass_point();
}

void ElasticProcess::opened(ConnectionId id, int, Port port) {
  if (port == Port::kAgent) agents_in_[id];
  if (port == Port::kData) data_in_[id] = 0;
}

void ElasticProcess::received(ConnectionId id, const std::string& bytes) {
  if (phase_ == Phase::kGone || dies_) return;
  if (const auto agent = agents_in_.find(id); agent != agents_in_.end()) {
    agent->second.append(bytes.data(), bytes.size());
    while (const auto frame = agent->second.next(backends::kFrameBytes))
      machine_->received(backends::read_membership_frame(*frame), clock());
    return;
  }
  const auto data = data_in_.find(id);
  if (data == data_in_.end()) return;
  NumberReader in(bytes);
  const std::uint64_t generation = in.next();
  const std::size_t rank = in.next();
  data->second = generation;
  if (!view_ || generation >= view_->generation) inboxes_[generation][rank].emplace_back(in.rest());
}

void ElasticProcess::closed(ConnectionId id, const std::string&) {
  if (phase_ == Phase::kGone || dies_ || agents_in_.erase(id) > 0) return;
  if (const auto data = data_in_.find(id); data != data_in_.end()) {
    if (view_ && data->second == view_->generation) group_broken_ = true;
    data_in_.erase(data);
    return;
  }
  if (std::ranges::find(data_out_, id) != data_out_.end()) group_broken_ = true;
  const auto agent =
      std::ranges::find_if(agents_, [&](const auto& entry) { return entry.second == id; });
  if (agent == agents_.end()) return;
  const int process = agent->first;
  agents_.erase(agent);
  const ConnectionId again = connect(process, Port::kAgent);
  if (again != 0) {
    agents_[process] = again;
  } else {
    const ElasticProcess* other = world_.processes[static_cast<std::size_t>(process)];
    if (!other->acceptor_) return;
    for (const backends::MemberId& id_of : other->acceptor_->ids) machine_->refused(id_of, clock());
  }
}

void ElasticProcess::send_to(int process, const MembershipMessage& message) {
  if (process == number_) return;
  ConnectionId& connection = agents_[process];
  if (connection == 0) connection = connect(process, Port::kAgent);
  if (connection == 0) {
    agents_.erase(process);
    machine_->refused(message.to, clock());
    return;
  }
  send(connection, backends::membership_frame(message));
}

void ElasticProcess::hand_out() {
  for (const MembershipMachine::Output& out : machine_->take_output()) {
    if (out.kind == MembershipMachine::Output::Kind::kNotice) continue;
    const int to =
        out.kind == MembershipMachine::Output::Kind::kSend ? out.to.port : world_.endpoint_holder();
    if (to >= 0) send_to(to, out.message);
  }
}

void ElasticProcess::serve_endpoint() {
  if (options_.host != 0 || !machine_->should_claim_endpoint() || clock() < next_claim_) return;
  next_claim_ = clock() + (phase_ == Phase::kSeeking ? kSeekingClaimInterval : kClaimInterval);
  if (!world_.claim_endpoint(number_)) return;
  machine_->set_endpoint_held(true, clock());
  pass_point();
}

void ElasticProcess::run_once() {
  if (phase_ == Phase::kGone) return;
  if (!dies_) act();
  if (!dies_) return;
  phase_ = Phase::kGone;
  network_.exit(number_);
  if (world_.died) world_.died(number_);
}

void ElasticProcess::act() {
  if (phase_ == Phase::kAway) {
    if (network_.now() < starts_at_) return;
    start();
  }
  serve_endpoint();
  machine_->tick(clock());
  believe();
  if (phase_ == Phase::kSeeking) {
    if (const backends::RosterPtr view = machine_->take_view()) {
      view_ = view;
      enter();
    } else if (machine_->failure()) {
      if (steps_.finished() && has_state_ && machine_->job_has_ended())
        return finish(End::kFinished, *machine_->failure());
      return finish(End::kFailed, *machine_->failure());
    }
  }
  if (phase_ == Phase::kGathering) gather();
  if (phase_ == Phase::kTraining) train();
  if ((phase_ == Phase::kGathering || phase_ == Phase::kTraining) &&
      (group_broken_ || machine_->broken()))
    leave_group();
  if (phase_ == Phase::kGone || dies_) return;
  believe();
  hand_out();
  if (phase_ == Phase::kLeaving && machine_->may_end()) {
    phase_ = Phase::kGone;
    network_.exit(number_);
  }
}

void ElasticProcess::believe() {
  // As long as neither changes, nothing that is looked at here does.
  if (machine_->roster() == believed_ && machine_->self().id == believed_as_) return;
  const std::uint64_t generation = generation_of(machine_->roster());
  if (generation < generation_of(believed_))
    world_.wrong.push_back("process " + std::to_string(number_) + " went back from generation " +
                           std::to_string(generation_of(believed_)) + " to " +
                           std::to_string(generation));
  believed_ = machine_->roster();
  believed_as_ = machine_->self().id;
  // Who has known that it was a member, and is no longer, has to be somebody new. (The others may
  // take its old identity in once more, from what it said before: a member that never speaks.)
  if (const backends::RosterPtr& roster = machine_->roster()) {
    for (const backends::MemberId& id : acceptor_->ids) {
      if (!roster->has(id)) {
        if (known_as_.contains(id)) left_out_.insert(id);
      } else if (left_out_.contains(id) && id == machine_->self().id) {
        world_.wrong.push_back("process " + std::to_string(number_) +
                               " came back under its old identity");
      } else if (id == machine_->self().id) {
        known_as_.insert(id);
      }
    }
  }
  world_.believe(machine_->roster());
}

void ElasticProcess::finish(End end, const std::string& why) {
  if (dies_) return;
  end_ = end;
  why_ = why;
  progress_was_possible_ = end == End::kFailed && [&] {
    end_ = End::kRunning;
    // A joining rank finds a job only through the endpoint, on whose host a process must be alive.
    const bool is_found =
        has_been_member_ || std::ranges::any_of(world_.processes, [](const ElasticProcess* p) {
          const bool serves = !p->options_.restarted || p->has_been_member_;
          return p->options_.host == 0 && ((p->is_alive() && serves) || p->end_ == End::kFinished);
        });
    const bool possible = is_found && can_progress(world_);
    end_ = End::kFailed;
    return possible;
  }();
  for (ConnectionId id : data_out_) {
    if (id != 0) network_.close(id);
  }
  if (end == End::kFinished || end == End::kWithdrew) {
    if (end == End::kWithdrew)
      machine_->withdraw(clock());
    else
      machine_->leave(clock());
    machine_->tick(clock());
    hand_out();
    phase_ = Phase::kLeaving;
    return;
  }
  phase_ = Phase::kGone;
  network_.exit(number_);
}

// ---- Training.

void ElasticProcess::enter() {
  rank_ = view_->place_of(machine_->self().id).value();
  has_been_member_ = true;
  is_new_member_ = view_->members[rank_].since == view_->generation;
  if (is_new_member_) has_state_ = false;
  group_broken_ = false;
  messages_ = 0;
  sent_ = false;
  data_out_.assign(view_->members.size(), 0);
  std::erase_if(inboxes_, [&](const auto& e) { return e.first < view_->generation; });
  for (std::size_t r = 0; r < view_->members.size(); ++r) {
    if (r == rank_) continue;
    data_out_[r] = connect(view_->members[r].port, Port::kData);
    if (data_out_[r] == 0) group_broken_ = true;
  }
  for (const backends::Member& m : view_->members) {
    const backends::Member known =
        world_.processes[static_cast<std::size_t>(m.port)]->description();
    const auto all_of = [](const backends::Member& member) {
      return std::tie(member.host, member.host_id, member.address, member.pid, member.store_port,
                      member.acceptor, member.hint);
    };
    if (all_of(known) != all_of(m))
      world_.wrong.push_back("process " + std::to_string(m.port) + " is not known as what it is");
  }
  phase_ = Phase::kGathering;
  broadcast_text(state_text(steps_, has_state_));
}

void ElasticProcess::leave_group() {
  for (ConnectionId& id : data_out_) {
    if (id != 0) network_.close(id);
    id = 0;
  }
  phase_ = Phase::kSeeking;
  machine_->want_view(clock());
  machine_->tick(clock());
}

void ElasticProcess::broadcast_text(const std::string& text) {
  const std::string message = NumberWriter().add(view_->generation).add(rank_).text() + text;
  for (const ConnectionId id : data_out_) send(id, message);
}

// The message of this round; none has come yet: null.
const std::string* ElasticProcess::next_from(std::size_t rank) const {
  const auto inbox = inboxes_.find(view_->generation);
  if (inbox == inboxes_.end()) return nullptr;
  const auto messages = inbox->second.find(rank);
  if (messages == inbox->second.end() || messages->second.size() <= messages_) return nullptr;
  return &messages->second[messages_];
}

// The members go on from the longest state of those that have one.
void ElasticProcess::gather() {
  Steps longest = steps_;
  bool has_any = has_state_;
  for (std::size_t r = 0; r < view_->members.size(); ++r) {
    if (r == rank_) continue;
    const std::string* text = next_from(r);
    if (text == nullptr) return;
    Steps theirs;
    if (!read_state(*text, theirs)) continue;
    if (!has_any || theirs.taken.size() > longest.taken.size()) longest = theirs;
    has_any = true;
  }
  begins_again_ = !has_any && world_.epoch_of(view_->generation) != view_->generation && rank_ == 0;
  is_needless_ = begins_again_ && somebody_had_the_state();
  if (!has_any) longest = {.epoch = view_->generation, .taken = {}};
  steps_ = longest;
  has_state_ = true;
  ++messages_;
  step_until_ = network_.now() + options_.step_time;
  phase_ = Phase::kTraining;
}

// A member of the generation before that lives, but was left out. It has the state if it has taken
// a step: what it may have received since counts no more.
bool ElasticProcess::somebody_had_the_state() const {
  const backends::RosterPtr before = world_.roster_of(view_->generation - 1);
  return before && std::ranges::any_of(world_.processes, [&](const ElasticProcess* p) {
           if (!p->is_alive() || !p->has_state_ || p->steps_.taken.empty()) return false;
           return before->has(p->stepped_as_);
         });
}

// A share of a step: its number, whether the members have to change behind it, whether it is the
// last, and whether its sender leaves. One more, empty, makes sure that all have taken the last.
void ElasticProcess::train() {
  if (!sent_ && network_.now() >= step_until_) {
    sent_ = true;
    // Behind the first step of a generation: all have the state by then.
    withdraws_ = is_asked_to_leave_ && !steps_.taken.empty() &&
                 steps_.taken.back().generation == view_->generation;
    leavers_ = withdraws_ ? 1 : 0;
    changes_ = machine_->join_wanted();
    last_ = network_.now() >= world_.last_step_from;
    broadcast_text(
        NumberWriter().add(steps_.taken.size()).add(changes_).add(last_).add(withdraws_).text());
  }
  if (!sent_ || dies_) return;
  for (std::size_t r = 0; r < view_->members.size(); ++r) {
    if (r != rank_ && next_from(r) == nullptr) return;
  }
  for (std::size_t r = 0; r < view_->members.size(); ++r) {
    if (r == rank_) continue;
    NumberReader in(*next_from(r));
    if (in.next() != steps_.taken.size()) world_.wrong.push_back("members are at different steps");
    changes_ = in.next() != 0 || changes_;
    last_ = in.next() != 0 || last_;
    leavers_ += in.next() != 0 ? 1 : 0;
  }
  ++messages_;
  sent_ = false;
  if (!steps_.taken.empty()) world_.hold_firm(steps_, steps_.taken.size() - 1);
  machine_->took_step(view_->generation, clock());
  stepped_as_ = view_->members[rank_].id;
  if (steps_.finished()) return finish(End::kFinished, "");
  // Only now: who was paused while it gathered may find out that the others have gone on.
  if (std::exchange(begins_again_, false)) {
    ++world_.lost_states;
    if (is_needless_) world_.wrong.push_back("the job began again while a state lived");
  }
  steps_.taken.push_back({view_->generation, last_});
  if (stepped_at_ != Time{}) longest_step_ = std::max(longest_step_, network_.now() - stepped_at_);
  stepped_at_ = network_.now();
  step_until_ = network_.now() + options_.step_time;
  if (last_) return;
  const bool some_leave =
      leavers_ > 0 && static_cast<int>(view_->members.size()) - leavers_ >= world_.min_ranks;
  if (some_leave && withdraws_) return finish(End::kWithdrew, "");
  if (changes_ || some_leave) leave_group();
}

}  // namespace simulation
