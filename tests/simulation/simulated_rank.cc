// What a simulated rank does: the loops that store_client.cc, store_server.cc, store_session.cc and
// join.cc run on sockets.
#include "tests/simulation/simulated_rank.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace simulation {
namespace {

using backends::FrameType;
using backends::FrameWriter;
using backends::MemberMachine;
using backends::ServerMachine;
using backends::SessionMachine;

constexpr int kFirstPid = 100;  // of process 0
constexpr auto kLongestPause = milliseconds(500);
constexpr auto kLinger = milliseconds(2000), kHurriedLeave = milliseconds(5000),
               kStopTimeout = milliseconds(2000);

std::string host_of(int rank) { return "n" + std::to_string(rank); }
std::string host_id_of(int rank) { return "boot " + std::to_string(rank); }

}  // namespace

SimulatedRank::SimulatedRank(VirtualNetwork& network, RankOptions options)
    : network_(network),
      options_(options),
      process_(network.dice().bytes(backends::kNonceBytes)),
      pause_until_(network.now() + options.starts_after) {
  deadline_ = pause_until_ + options.rendezvous_timeout;
}

backends::Hello SimulatedRank::hello_of(int rank, int world_size) {
  backends::Hello h;
  h.rank = rank;
  h.world_size = world_size;
  h.port = rank % 2 == 1 ? kPort : 0;  // some know it
  h.job = "simulation";
  h.build = "this one";
  h.host = host_of(rank);
  h.host_id = host_id_of(rank);
  h.settings = {{"--batch-size", "64"}};
  h.settings_digest = backends::settings_digest(h.settings);
  return h;
}

backends::Hello SimulatedRank::hello() {
  backends::Hello h = hello_of(options_.rank, options_.world_size);
  h.pid = kFirstPid + options_.number;
  h.process = process_;
  h.attempt = ++attempt_;
  h.settings = options_.settings;
  h.settings_digest = backends::settings_digest(h.settings);
  return h;
}

Time SimulatedRank::wake_at() const {
  const Time now = network_.now();
  switch (phase_) {
    case Phase::kAway:
    case Phase::kPause:
      return server_ ? std::min(pause_until_, server_->next_tick()) : pause_until_;
    case Phase::kGone:
      return Time::max();
    default:
      break;
  }
  Time next = now + milliseconds(200);
  if (server_) next = std::min(next, server_->next_tick());
  if (phase_ == Phase::kTraining && step_done_ > now) next = std::min(next, step_done_);
  return next;
}

void SimulatedRank::stop() { stop_wanted_ = true; }
void SimulatedRank::give_up(bool says_why) { (says_why ? gives_up_ : gives_no_reason_) = true; }

void SimulatedRank::opened(ConnectionId id, int from, Port port) {
  if (port == Port::kProbe) {
    network_.send(id, "here");
    network_.close(id);
  } else if (port == Port::kStore) {
    served_.insert(id);
    served_by_[id] = from;
    server_->opened(id, "process " + std::to_string(from), network_.now());
  } else {
    links_[id] = from;
    link_to_[from] = id;
  }
}

void SimulatedRank::received(ConnectionId id, const std::string& bytes) {
  if (id == store_) {
    if (session_) session_->received(bytes);
    if (member_) member_->received(bytes, network_.now());
  } else if (id == attempt_store_) {
    member_->attempt_answered();
    again_->received(bytes);
  } else if (const auto probe = probes_.find(id); probe != probes_.end()) {
    server_->probed(probe->second, ServerMachine::Probe::kAnswered, network_.now());
    network_.close(id);
    probes_.erase(probe);
  } else if (const auto question = questions_.find(id); question != questions_.end()) {
    if (member_) member_->answer(question->second, true);
    network_.close(id);
    questions_.erase(question);
  } else if (const auto link = links_.find(id); link != links_.end()) {
    ++received_steps_[link->second];
    if (bytes == "last") stop_agreed_ = true;
  } else if (served_.contains(id)) {
    server_->received(id, bytes, network_.now());
  }
}

void SimulatedRank::closed(ConnectionId id, const std::string& cause) {
  if (id == attempt_store_) {
    end_attempt();
  } else if (const auto probe = probes_.find(id); probe != probes_.end()) {
    server_->probed(probe->second, ServerMachine::Probe::kFailed, network_.now());
    probes_.erase(probe);
  } else if (const auto question = questions_.find(id); question != questions_.end()) {
    if (member_) member_->answer(question->second, false);
    questions_.erase(question);
  } else if (id == store_) {
    if (member_) member_->closed(cause);
    if (member_ && member_->is_broken()) store_ = 0;
    if (session_) {
      session_.reset();
      store_ = 0;
      pause_until_ = network_.now() + pause_;
      phase_ = Phase::kPause;
    }
  } else if (const auto link = links_.find(id); link != links_.end()) {
    if (!broken_link_) broken_link_ = link->second;
    links_.erase(link);
  } else if (served_.erase(id) > 0) {
    server_->closed(
        id, cause,
        cause == kFinishedText ? backends::Ending::kFinished : backends::Ending::kBroken);
  }
}

void SimulatedRank::run_once() {
  const Time now = network_.now();
  if (phase_ == Phase::kAway && now >= pause_until_) {
    phase_ = Phase::kPause;
    if (options_.rank == 0) {
      server_ = std::make_unique<ServerMachine>(
          ServerMachine::Options{
              .secret = secret_,
              .job = hello(),
              .port = kPort,
              .heartbeat_ms = options_.heartbeat_ms,
              .stall_after_ms = 10'000,
              .stall_abort = options_.stall_abort,
              .link_patience = options_.link_patience,
              .random = [this](std::size_t n) { return network_.dice().bytes(n); }},
          now);
    }
  }
  if (server_) {
    server_->tick(now);
    flush_server();
  }
  if (phase_ == Phase::kPause && now >= pause_until_) connect_to_store();
  if (phase_ == Phase::kHandshake) on_session();
  if (member_) on_member();
  if (phase_ == Phase::kLingering) {
    if (server_->may_end() || now >= linger_until_) leave_network();
  }
  if (phase_ != Phase::kGone) flush();
}

void SimulatedRank::connect_to_store() {
  const Time now = network_.now();
  if (now >= deadline_) return end(End::kNoGroup, "rank 0 did not appear");
  store_ = network_.connect(options_.number, 0, Port::kStore);
  if (store_ == 0) {
    pause_until_ = now + pause_;
    pause_ = std::min(2 * pause_, kLongestPause);
    return;
  }
  session_ = std::make_unique<SessionMachine>(
      secret_, hello(), network_.dice().bytes(backends::kNonceBytes), "rank 0");
  handshake_until_ = std::min(deadline_, now + backends::kHandshakeTimeout);
  phase_ = Phase::kHandshake;
}

void SimulatedRank::on_session() {
  const Time now = network_.now();
  switch (session_->state()) {
    case SessionMachine::State::kRunning:
      if (now < handshake_until_) return;
      break;
    case SessionMachine::State::kWelcome:
      flush();
      member_ = std::make_unique<MemberMachine>(
          std::move(session_->parser()), std::move(session_->seals()), options_.heartbeat_ms, now,
          backends::LinkPatience{options_.link_patience, options_.rank == 0 ? 0 : kPort});
      session_.reset();
      phase_ = Phase::kJoining;
      member_->received({}, now);
      return;
    case SessionMachine::State::kRefused:
      return end(End::kNoGroup, session_->refusal().second);
    default:
      return end(End::kNoGroup, "no store answers");
  }
  network_.close(store_);
  store_ = 0;
  session_.reset();
  pause_until_ = now + pause_;
  phase_ = Phase::kPause;
}

void SimulatedRank::on_member() {
  const Time now = network_.now();
  member_->tick(now);
  continue_session();
  answer_questions();
  if (member_->heartbeat_due(now)) {
    outcome_.activity = member_->state().activity;
    member_->heartbeat(progress(), now);
  }
  for (std::string& notice : member_->take_notices()) outcome_.notices.push_back(std::move(notice));
  flush();
  if (phase_ == Phase::kJoining) {
    if (member_->state().fatal) return end(End::kNoGroup, member_->state().fatal->second);
    if (member_->state().started) {
      start_training();
    } else if (member_->state().lost) {
      network_.close(store_);
      member_.reset();
      store_ = 0;
      pause_until_ = now;
      phase_ = Phase::kPause;
      return;
    } else if (stop_wanted_ || now >= deadline_) {
      const std::string text = stop_wanted_ ? "stopped while waiting" : "ranks are missing";
      if (server_) server_->give_up(backends::RefusalKind::kPeer, text);
      return end(stop_wanted_ ? End::kStopped : End::kNoGroup, text);
    }
  }
  if (phase_ == Phase::kTraining) train();
  if (phase_ == Phase::kLeaving && (member_->state().left || member_->state().lost ||
                                    member_->state().failure || now >= leave_until_))
    end(stop_agreed_ ? End::kStopped : End::kFinished, "");
}

void SimulatedRank::ask_store(FrameType type, const std::string& key, const std::string& text,
                              const std::string& expected) {
  const auto request = member_->request(type, key, [&](FrameWriter& out) {
    if (type == FrameType::kSet) out.text(text);
  });
  expected_[*request] = expected;
}

// Each rank keeps a value, asks for the next rank's, which may not be there yet, and counts itself.
void SimulatedRank::use_store() {
  const std::string mine = "value of " + std::to_string(options_.rank);
  const std::string next = "value of " + std::to_string((options_.rank + 1) % options_.world_size);
  ask_store(FrameType::kGet, next, "", next);
  ask_store(FrameType::kSet, mine, mine, "");
  sum_request_ = member_->request(FrameType::kAdd, "ranks", [](FrameWriter& out) { out.i64(1); });
  if (!options_.uses_all) return;
  const std::string own = "counter of " + std::to_string(options_.rank);
  const auto add = [&](std::int64_t number, const std::string& expected) {
    const auto request =
        member_->request(FrameType::kAdd, own, [&](FrameWriter& out) { out.i64(number); });
    expected_[*request] = expected;
  };
  std::string any_bytes;
  for (int i = 0; i < 300; ++i) any_bytes.push_back(static_cast<char>(i));
  ask_store(FrameType::kSet, own, any_bytes, "");
  ask_store(FrameType::kGet, own, "", any_bytes);
  ask_store(FrameType::kSet, own, "7", "");
  ask_store(FrameType::kRemove, own, "", "");
  add(5'000'000'000, "5000000000");
  add(-5'000'000'007, "-7");
  ask_store(FrameType::kGet, own, "", "-7");
}

// REQUIRES: all have left, of which the store tells behind its replies.
void SimulatedRank::check_replies() {
  if (!sum_request_) return;
  const auto reply = [&](std::uint32_t request) {
    return member_->replies().at(request).value_or("no answer");
  };
  for (const auto& [request, expected] : expected_) {
    if (reply(request) != expected)
      outcome_.wrong.push_back("'" + reply(request) + "' for '" + expected + "'");
  }
  outcome_.sum = std::strtoll(reply(*sum_request_).c_str(), nullptr, 10);
  if (outcome_.sum < 1 || outcome_.sum > options_.world_size)
    outcome_.wrong.push_back("the sum " + std::to_string(outcome_.sum));
}

bool SimulatedRank::takes_for_there(int rank) const {
  if (phase_ != Phase::kJoining) return false;
  const MemberMachine::Absent& absent = member_->state().absent;
  return std::ranges::find(absent.missing, rank) == absent.missing.end() &&
         std::ranges::find(absent.left, rank) == absent.left.end();
}

// Who is in the group, as rank 0 has said.
void SimulatedRank::check_peers() {
  const std::vector<backends::PeerInfo>& peers = member_->state().peers;
  bool right = std::ssize(peers) == options_.world_size;
  for (int r = 0; right && r < options_.world_size; ++r) {
    const backends::PeerInfo& peer = peers[static_cast<std::size_t>(r)];
    right = peer.rank == r && peer.host == host_of(r) && peer.host_id == host_id_of(r) &&
            network_.has(peer.pid - kFirstPid);
  }
  if (!right) outcome_.wrong.push_back("who is in the group");
  for (int r = 0; r < options_.world_size; ++r)
    processes_.push_back(right ? peers[static_cast<std::size_t>(r)].pid - kFirstPid : r);
}

int SimulatedRank::process_of(int rank) const { return processes_[static_cast<std::size_t>(rank)]; }

int SimulatedRank::rank_of(int process) const {
  const auto found = std::ranges::find(processes_, process);
  return found == processes_.end() ? 0 : static_cast<int>(found - processes_.begin());
}

// Of rank 0, which has just had the others' messages of a step.
void SimulatedRank::check_statuses() {
  constexpr int kLate = 3;  // steps that a heartbeat may need
  const std::vector<backends::RankStatus> statuses = server_->statuses();
  for (int r = 0; r < std::ssize(statuses); ++r) {
    const backends::RankStatus& status = statuses[static_cast<std::size_t>(r)];
    if (status.activity == kStuck) continue;
    const std::string text = "rank " + std::to_string(r) + " is in '" + status.activity +
                             "' after step " + std::to_string(step_) +
                             (status.connected ? "" : ", not connected");
    if (status.rank != r) outcome_.wrong.push_back(text);
    int step = -1;
    std::sscanf(status.activity.c_str(), "step %d", &step);
    const bool is_one = status.activity == "step " + std::to_string(step);
    const std::string& call = status.progress.call;
    if (!status.connected || (step_ > kLate && !is_one) || step < step_ - kLate ||
        (!call.empty() && !call.starts_with("step ")) ||
        call.empty() != (status.progress.waiting_ms == 0))
      outcome_.outdated.push_back(text + ", waits " + std::to_string(status.progress.waiting_ms) +
                                  " ms in '" + call + "'");
  }
}

// Where this rank waits for others.
backends::RankProgress SimulatedRank::progress() const {
  if (phase_ != Phase::kTraining || !step_sent_ || network_.now() < stuck_until_) return {};
  backends::RankProgress progress;
  progress.waiting_ms = 1 + (network_.now() - step_sent_at_) / milliseconds(1);
  progress.call = "step " + std::to_string(step_);
  for (int peer = 0; peer < options_.world_size; ++peer) {
    const auto received = received_steps_.find(process_of(peer));
    if (peer == options_.rank || (received != received_steps_.end() && received->second > step_))
      continue;
    progress.links = "nothing from rank " + std::to_string(peer);
    break;
  }
  return progress;
}

void SimulatedRank::start_training() {
  phase_ = Phase::kTraining;
  check_peers();
  if (options_.mesh) use_store();
  outcome_.group = member_->state().group_nonce;
  step_done_ = network_.now() + options_.step_time;
  // Each rank connects to those before it.
  for (int peer = 0; options_.mesh && peer < options_.rank; ++peer) {
    const int process = process_of(peer);
    const ConnectionId id = network_.connect(options_.number, process, Port::kData);
    if (id == 0) {
      broken_link_ = process;
      continue;
    }
    links_[id] = process;
    link_to_[process] = id;
  }
}

// As TcpStore does: a refused attempt proves the end of rank 0, one without an answer does not.
void SimulatedRank::continue_session() {
  constexpr auto kPause = milliseconds(200), kLongest = milliseconds(3000);
  const Time now = network_.now();
  if (!member_->wants_connection()) return end_attempt();
  if (attempt_store_ != 0 && member_->wants_second_attempt(now)) {
    network_.close(std::exchange(attempt_store_, 0));
    next_attempt_ = now;
  }
  if (attempt_store_ == 0 && now >= next_attempt_) {
    next_attempt_ = now + kPause;
    // The first packet of the attempt, or of the answer, is lost.
    if (network_.is_cut(options_.number, 0) || network_.is_cut(0, options_.number)) return;
    attempt_store_ = network_.connect(options_.number, 0, Port::kStore);
    if (attempt_store_ == 0) return member_->attempt_refused();
    member_->attempt_accepted(now);
    backends::Hello again = hello();
    again.received = member_->received_frames();
    again_ = std::make_unique<SessionMachine>(
        secret_, std::move(again), network_.dice().bytes(backends::kNonceBytes), "rank 0");
    attempt_until_ = now + kLongest;
  }
  if (attempt_store_ == 0) return;
  network_.send(attempt_store_, again_->take_output());
  if (again_->state() == SessionMachine::State::kWelcome) {
    if (store_ != 0) network_.close(store_);
    store_ = std::exchange(attempt_store_, 0);
    ++continued_;
    continued_at_ = now;
    member_->continued(std::move(again_->parser()), std::move(again_->seals()),
                       again_->peer_received(), now);
    again_.reset();
    member_->received({}, now);
  } else if (again_->state() == SessionMachine::State::kRefused) {
    member_->attempt_rejected(again_->refusal().second);
  } else if (again_->state() != SessionMachine::State::kRunning || now >= attempt_until_) {
    end_attempt();
  }
}

void SimulatedRank::end_attempt() {
  if (attempt_store_ == 0) return;
  network_.close(std::exchange(attempt_store_, 0));
  again_.reset();
  if (member_) member_->attempt_failed();
}

// Of the member's process, whose number its address has.
void SimulatedRank::start_probe(backends::LinkId link) {
  const auto member = served_by_.find(link);
  if (member == served_by_.end()) return;
  const int process = member->second;
  if (network_.is_cut(options_.number, process) || network_.is_cut(process, options_.number))
    return;
  using enum VirtualNetwork::Router;
  if (const auto router = network_.router_of(process)) {
    if (router == kDrops) return;
    const auto result =
        router == kRefuses ? ServerMachine::Probe::kRefused : ServerMachine::Probe::kAccepted;
    return server_->probed(link, result, network_.now());
  }
  const ConnectionId id = network_.connect(options_.number, process, Port::kProbe);
  if (id == 0) return server_->probed(link, ServerMachine::Probe::kRefused, network_.now());
  probes_[id] = link;
  server_->probed(link, ServerMachine::Probe::kAccepted, network_.now());
}

// The address names the process.
void SimulatedRank::answer_questions() {
  for (const auto& [rank, address] : member_->take_questions()) {
    const int process = std::atoi(address.c_str() + std::string("process ").size());
    const bool is_cut = network_.is_cut(options_.number, process) ||
                        network_.is_cut(process, options_.number) || network_.router_of(process);
    const ConnectionId id = is_cut ? 0 : network_.connect(options_.number, process, Port::kProbe);
    if (id == 0) {
      member_->answer(rank, false);
    } else {
      questions_[id] = rank;
    }
  }
}

bool SimulatedRank::has_all(int step) const {
  for (int peer = 0; peer < options_.world_size; ++peer) {
    if (peer == options_.rank) continue;
    const auto received = received_steps_.find(process_of(peer));
    if (received == received_steps_.end() || received->second <= step) return false;
  }
  return true;
}

void SimulatedRank::send_step(int step) {
  step_sent_ = true;
  step_sent_at_ = network_.now();
  step_deadline_ = network_.now() + options_.step_timeout;
  member_->set_activity("step " + std::to_string(step));
  if (options_.counts_steps) {
    const auto request =
        member_->request(FrameType::kAdd, "steps of " + std::to_string(options_.rank),
                         [](FrameWriter& out) { out.i64(1); });
    expected_[*request] = std::to_string(step + 1);
    // And asks for what the next rank will set two steps later.
    const auto key = [this](int rank, int at) {
      return "step " + std::to_string(at) + " of " + std::to_string(rank % options_.world_size);
    };
    ask_store(FrameType::kSet, key(options_.rank, step), "done", "");
    if (step + 2 < options_.steps)
      ask_store(FrameType::kGet, key(options_.rank + 1, step + 2), "", "done");
  }
  // The others learn of the wish with this step's message, and all stop after the step.
  stop_agreed_ = stop_agreed_ || stop_wanted_;
  for (int peer = 0; peer < options_.world_size; ++peer) {
    if (peer == options_.rank) continue;
    network_.send(link_to_.at(process_of(peer)), stop_agreed_ ? "last" : "step");
  }
}

void SimulatedRank::train() {
  const Time now = network_.now();
  if (gives_up_ && !outcome_.gave_up && !member_->state().failure) {
    outcome_.gave_up = true;
    member_->abandon({kReason}, options_.rank);
  }
  if (member_->state().failure) return end(End::kFailed, member_->state().failure->what.text);
  if (gives_no_reason_) return end(End::kStopped, "ended without a word");
  if (options_.steps == 0) return leave();
  if (now < stuck_until_) return member_->set_activity(kStuck);
  if (stop_wanted_ && stop_until_ == Time::max()) stop_until_ = now + kStopTimeout;
  // Not before all links stand: a rank that connects later has not been heard of.
  const bool connected = std::ssize(link_to_) == options_.world_size - 1;
  if (connected && !step_sent_ && now >= step_done_) send_step(step_);
  if (step_sent_ && has_all(step_)) {
    ++step_;
    outcome_.steps = step_;
    if (server_) {
      check_statuses();
      server_->set_status("step " + std::to_string(step_));
    }
    // What has been kept is still there.
    if (step_ == options_.steps / 2) {
      const std::string mine = "value of " + std::to_string(options_.rank);
      ask_store(FrameType::kGet, mine, "", mine);
    }
    step_sent_ = false;
    step_done_ = now + options_.step_time;
    if (stop_agreed_ || step_ >= options_.steps) leave();
    return;
  }
  if (now >= stop_until_) return end(End::kStopped, "stopped alone");
  if (broken_link_) {
    // The store knows more: its verdict is waited for.
    if (verdict_until_ == Time{})
      verdict_until_ = now + milliseconds(4 * options_.heartbeat_ms) + options_.data_patience;
    if (now >= verdict_until_) {
      outcome_.culprit = rank_of(*broken_link_);
      return end(End::kFailed, "lost the connection to rank " + std::to_string(*outcome_.culprit));
    }
  }
  if (step_sent_ && now >= step_deadline_) return end(End::kTimedOut, "a step took too long");
}

void SimulatedRank::leave() {
  member_->leave();
  leave_until_ = network_.now() + (stop_wanted_ ? kHurriedLeave : options_.step_timeout);
  phase_ = Phase::kLeaving;
}

void SimulatedRank::end(End how, const std::string& text) {
  if (outcome_.end != End::kRunning) return;
  outcome_.end = how;
  outcome_.text = text;
  outcome_.at = network_.now();
  if (how == End::kFinished && member_->state().left) check_replies();
  if (how == End::kNoGroup && member_) {
    outcome_.missing = member_->state().absent.missing;
    outcome_.left = member_->state().absent.left;
  }
  if (how == End::kFailed && !outcome_.culprit) outcome_.culprit = member_->state().failure->rank;
  if (member_) member_->end();
  flush();
  if (server_) {
    // Its own connection closes first, as the client is destroyed before the server.
    if (store_ != 0) network_.close(store_);
    store_ = 0;
    member_.reset();
    linger_until_ = network_.now() + kLinger;
    phase_ = Phase::kLingering;
    for (const auto& [id, rank] : links_) network_.close(id);
    links_.clear();
    return;
  }
  leave_network();
}

void SimulatedRank::leave_network() {
  if (server_) {
    server_->notify_end();
    flush_server();
  }
  phase_ = Phase::kGone;
  network_.exit(options_.number);
}

void SimulatedRank::flush() {
  if (session_ && store_ != 0) network_.send(store_, session_->take_output());
  if (member_ && store_ != 0) {
    network_.send(store_, member_->take_output());
    member_->sent();
  }
}

void SimulatedRank::flush_server() {
  for (const ServerMachine::Output& output : server_->take_output()) {
    if (output.kind == ServerMachine::Output::Kind::kSend) {
      network_.send(output.link, output.text);
    } else if (output.kind == ServerMachine::Output::Kind::kProbe) {
      start_probe(output.link);
    } else if (output.kind == ServerMachine::Output::Kind::kNotice) {
      outcome_.of_server.push_back(output.text);
    } else if (output.kind == ServerMachine::Output::Kind::kClose &&
               served_.erase(output.link) > 0) {
      network_.close(output.link);
    }
  }
}

}  // namespace simulation
