// The server's members and keys: joining, leaving, failures, requests.
#include <algorithm>

#include "backends/store/protocol/server_machine.h"
#include "io/base/text/escape_text.h"

namespace backends {
namespace {

constexpr auto kProgressInterval = std::chrono::milliseconds(200);

std::string silence_text(int heartbeat_ms) {
  return "does not answer: no heartbeat for " + std::to_string(3 * heartbeat_ms) + " ms";
}

GroupFailure failure_of(const Hello& who, const std::string& activity, const std::string& cause) {
  return {member_failure_text(member_text(who.rank, who.host, who.pid), cause, activity)};
}

// 0: none.
int read_port(FrameReader& in) {
  const int port = in.i32();
  if (port < 0 || port > 65'535) throw MalformedFrame();
  return port;
}

std::string failure_frame(int culprit, const GroupFailure& failure) {
  return FrameWriter(FrameType::kFailure)
      .i32(culprit)
      .u8(failure.mismatch ? 1 : 0)
      .text(failure.text)
      .finish();
}

}  // namespace

bool ServerMachine::is_superseded(const Hello& h) const {
  if (h.rank < 0 || h.rank >= options_.job.world_size) return false;
  const auto is_older = [&](const Hello& held) {
    return is_same_process(held, h) && h.attempt < held.attempt;
  };
  const Link* member = members_[static_cast<std::size_t>(h.rank)];
  const auto absent = disconnected_.find(h.rank);
  return (member != nullptr && is_older(member->hello)) ||
         (absent != disconnected_.end() && is_older(absent->second.hello));
}

std::string ServerMachine::disagreement_on_rank(const Hello& h, RefusalKind& kind) const {
  if (h.received) return disagreement_on_session(h, kind);
  const std::string who = member_text(h.rank, h.host, h.pid);
  const Link* member = members_[static_cast<std::size_t>(h.rank)];
  const auto absent = disconnected_.find(h.rank);
  const Hello* holder = nullptr;
  if (member != nullptr && (started_ || member->alive())) holder = &member->hello;
  if (absent != disconnected_.end()) holder = &absent->second.hello;
  const bool same = holder != nullptr && is_same_process(*holder, h);
  if (same && absent != disconnected_.end() && absent->second.given_up) {
    kind = RefusalKind::kPeer;
    return who + " was declared dead by the others: it " + absent->second.cause +
           " before it confirmed the start of the group, and reconnected too late";
  }
  if (same &&
      (member == nullptr || (!member->session.acknowledged_start && !member->session.leaving)))
    return "";
  if (holder != nullptr && !same) {
    if (started_) kind = RefusalKind::kOtherJob;
    return "rank " + std::to_string(h.rank) +
           " joined twice: " + member_text(h.rank, holder->host, holder->pid) + " and " + who;
  }
  if (started_) {
    kind = RefusalKind::kStarted;
    return who + " tried to join a group that has already started";
  }
  return "";
}

void ServerMachine::add_member(Link& l) {
  if (l.hello.received) return continue_session(l);
  Link*& place = members_[static_cast<std::size_t>(l.hello.rank)];
  if (place != nullptr && place->alive()) place->end = "its process has connected again";
  if (place != nullptr && place->doubt) heard_again(l, *place->doubt);
  place = &l;
  disconnected_.erase(l.hello.rank);
  left_early_.erase(l.hello.rank);
  l.stage = Link::Stage::kMember;
  l.session.sent = SentFrames(options_.link_patience.count() > 0);
  put_out(l, welcome_frame(0));
  if (!started_) return on_joined();
  send(l, frames_.start);
  if (failed_) send(l, frames_.failure);
}

void ServerMachine::handle_member(Link& l, const Frame& frame) {
  FrameReader in(frame.payload);
  switch (frame.type) {
    case FrameType::kHeartbeat:
      l.session.activity = base::escape_text(in.text());
      l.session.progress.waiting_ms = in.u32();
      l.session.progress.call = base::escape_text(in.text());
      l.session.progress.links = base::escape_text(in.text());
      l.session.sent.acknowledge(static_cast<std::uint64_t>(in.i64()));
      return;
    case FrameType::kStartAcknowledged:
      if (!started_) throw MalformedFrame();
      l.session.acknowledged_start = true;
      l.session.port = read_port(in);
      send_heartbeat_to(l);  // acknowledges it
      if (l.session.sent.keeps()) probe(l);
      return;
    case FrameType::kLeave:
      return on_leave(l, in);
    case FrameType::kAbandon:
      return on_abandon(l, in);
    case FrameType::kAnswer:
      return on_answer(l, in);
    case FrameType::kRootSilent: {
      Link* const root = members_[0];
      if (!started_ || root == nullptr) return;
      declare_failure(*root, silence_text(options_.heartbeat_ms));
      return send_root_silent(*root);
    }
    default:
      return handle_request(l, frame.type, in);
  }
}

void ServerMachine::on_leave(Link& l, FrameReader& in) {
  std::string calls = in.text();
  if (started_ && !l.session.acknowledged_start &&
      !l.session.leaving) {  // it gave up waiting for the start
    declare_failure(l, early_end_text(""));
  }
  if (started_ && !failed_ && !l.session.leaving) {
    if (departed_.empty()) next_.departures = now_ + kProgressInterval;
    departed_[l.hello.rank] = std::move(calls);
  }
  l.session.leaving = true;
  if (!started_) {
    l.end = "it left before the start";
    left_early_.insert(l.hello.rank);
  }
  check_all_left();
}

void ServerMachine::on_abandon(Link& l, FrameReader& in) {
  const bool mismatch = in.u8() != 0;
  const std::string why = base::escape_text(in.text());
  if (started_ && !l.session.leaving)
    fail_members(l.hello.rank,
                 mismatch ? GroupFailure{why, true}
                          : failure_of(l.hello, l.session.activity, early_end_text(why)),
                 nullptr);
  l.session.leaving = true;
}

void ServerMachine::handle_request(Link& l, FrameType type, FrameReader& in) {
  const std::uint32_t request = in.u32();
  const std::string key = in.text();
  switch (type) {
    case FrameType::kSet:
      set(key, in.text());
      return send_reply(l, request, "");
    case FrameType::kGet:
      if (const auto found = keys_.values.find(key); found != keys_.values.end())
        return send_reply(l, request, found->second);
      keys_.waiters[key].emplace_back(&l, request);
      return;
    case FrameType::kAdd: {
      const auto found = keys_.values.find(key);
      const std::int64_t before =
          found == keys_.values.end() ? 0 : std::strtoll(found->second.c_str(), nullptr, 10);
      std::int64_t sum = 0;
      if (__builtin_add_overflow(before, in.i64(), &sum)) throw MalformedFrame();
      set(key, std::to_string(sum));
      return send_reply(l, request, std::to_string(sum));
    }
    case FrameType::kRemove:
      keys_.values.erase(key);
      return send_reply(l, request, "");
    case FrameType::kReach:
      return send_reply(
          l, request,
          reach_text(l.hello.rank, static_cast<int>(std::strtol(key.c_str(), nullptr, 10))));
    default:
      throw MalformedFrame();
  }
}

void ServerMachine::set(const std::string& key, std::string value) {
  const auto waiting = keys_.waiters.extract(key);
  if (!waiting.empty()) {
    for (const auto& [connection, request] : waiting.mapped())
      send_reply(*connection, request, value);
  }
  keys_.values[key] = std::move(value);
}

void ServerMachine::send_reply(Link& l, std::uint32_t request, const std::string& value) {
  send(l, FrameWriter(FrameType::kReply).u32(request).text(value).finish());
}

std::vector<int> ServerMachine::missing() const {
  std::vector<int> ranks;
  for (std::size_t r = 0; r < members_.size(); ++r) {
    const Link* m = members_[r];
    const int rank = static_cast<int>(r);
    if ((m == nullptr || !m->alive()) && left_early_.count(rank) == 0) ranks.push_back(rank);
  }
  return ranks;
}

void ServerMachine::on_joined() {
  progress_changed_ = true;
  if (!left_early_.empty() || !missing().empty()) return;
  started_ = true;
  FrameWriter start(FrameType::kStart);
  start.bytes(options_.random(kNonceBytes)).u32(static_cast<std::uint32_t>(members_.size()));
  for (const Link* m : members_) start.text(m->hello.host).text(m->hello.host_id).i32(m->hello.pid);
  frames_.start = start.finish();
  broadcast(frames_.start);
  notify_observers(absence_frame());
}

void ServerMachine::on_lost(Link& l) {
  for (auto& [key, list] : keys_.waiters) {
    std::erase_if(list, [&](const auto& waiter) { return waiter.first == &l; });
  }
  std::erase_if(keys_.waiters, [](const auto& entry) { return entry.second.empty(); });
  Link*& place = members_[static_cast<std::size_t>(l.hello.rank)];
  if (place != &l) return;  // its process has reconnected
  place = nullptr;
  if (started_ && !l.session.leaving) {
    if (l.doubt && !l.doubt->verdict.empty()) {
      const bool is_silent = std::exchange(l.silent, false);
      declare_failure(l, l.doubt->verdict);
      if (!l.session.acknowledged_start)
        disconnected_[l.hello.rank] = {
            l.hello, l.session.activity,
            l.is_broken() ? "died: " + l.doubt->broken : l.doubt->verdict, now_, true};
      if (is_silent) send_root_silent(l);
    } else if (l.silent) {
      l.silent = false;  // if it wakes up again, it gets the report that the others got
      declare_failure(l, silence_text(options_.heartbeat_ms));
      send_root_silent(l);
    } else if (!l.session.acknowledged_start) {
      // The deadline counts from the last frame, as for a silent rank: the rank may have been
      // silent since then. The other ranks wait for a verdict one heartbeat longer and then end;
      // they would be reported as failed themselves.
      const auto limit = std::chrono::milliseconds(3 * options_.heartbeat_ms);
      disconnected_[l.hello.rank] = {l.hello, l.session.activity, "died: " + l.end,
                                     l.last_received + limit};
    } else {
      declare_failure(l, "died: " + l.end);
    }
  }
  if (started_) check_all_left();
  progress_changed_ = true;
}

// Limits the rate: one message per change would be half a million frames in a world of 1,000 ranks.
void ServerMachine::send_progress() {
  if (!progress_changed_ || started_ || !frames_.fatal.empty() || now_ < next_.progress) return;
  progress_changed_ = false;
  next_.progress = now_ + kProgressInterval;
  broadcast(absence_frame());
  notify_observers(absence_frame());
}

// Most ranks leave at about the same time: none of them needs to know of the others.
void ServerMachine::send_departures() {
  if (departed_.empty() || now_ < next_.departures) return;
  FrameWriter frame(FrameType::kDeparted);
  frame.u32(static_cast<std::uint32_t>(departed_.size()));
  for (const auto& [rank, calls] : departed_) frame.i32(rank).text(calls);
  departed_.clear();
  const auto shared = std::make_shared<const std::string>(frame.finish());
  for (Link* m : members_) {
    if (m != nullptr && !m->session.leaving) send(*m, shared);
  }
}

std::string ServerMachine::absence_frame() const {
  if (started_) return progress_frame({}, {});
  return progress_frame(missing(), {left_early_.begin(), left_early_.end()});
}

void ServerMachine::expire_disconnected(bool paused) {
  for (auto& [rank, absent] : disconnected_) {
    if (absent.given_up) continue;
    if (paused) absent.until = now_ + std::chrono::milliseconds(3 * options_.heartbeat_ms);
    if (now_ < absent.until) continue;
    absent.given_up = true;
    declare_failure(absent.hello, absent.activity, absent.cause);
  }
}

bool ServerMachine::awaits_reconnection() const {
  return std::ranges::any_of(disconnected_,
                             [](const auto& entry) { return !entry.second.given_up; });
}

void ServerMachine::declare_failure(const Link& l, const std::string& cause) {
  declare_failure(l.hello, l.session.activity, cause);
}

void ServerMachine::declare_failure(const Hello& who, const std::string& activity,
                                    const std::string& cause) {
  fail_members(who.rank, failure_of(who, activity, cause),
               members_[static_cast<std::size_t>(who.rank)]);
}

void ServerMachine::fail_members(int culprit, const GroupFailure& failure, const Link* except) {
  if (failed_) return;  // later failures are consequences of the first
  failed_ = true;
  frames_.failure = failure_frame(culprit, failure);
  broadcast(frames_.failure, except);
}

// Sends the silent rank a text that differs from that of the others; it has no effect after another
// failure.
void ServerMachine::send_root_silent(Link& l) {
  send(l, failure_frame(l.hello.rank,
                        {"this rank was silent for " + std::to_string(3 * options_.heartbeat_ms) +
                         " ms and was declared dead by the others, which have ended without it"}));
}

void ServerMachine::check_all_left() {
  const auto done = [](const Link* m) { return m == nullptr || m->session.leaving; };
  if (all_left_ || !started_ || awaits_reconnection()) return;
  if (!std::all_of(members_.begin(), members_.end(), done)) return;
  all_left_ = true;
  broadcast(FrameWriter(FrameType::kLeft).finish());
}

std::vector<RankStatus> ServerMachine::statuses() const {
  std::vector<RankStatus> all(members_.size());
  for (std::size_t r = 0; r < all.size(); ++r) {
    const Link* m = members_[r];
    all[r].rank = static_cast<int>(r);
    all[r].connected = m != nullptr && m->alive() && !m->is_broken();
    if (m == nullptr) continue;
    all[r].activity = m->session.activity;
    all[r].progress = m->session.progress;
  }
  return all;
}

void ServerMachine::fail_group(RefusalKind kind, const std::string& text) {
  if (started_ || !frames_.fatal.empty()) return;
  frames_.fatal = refusal_frame(FrameType::kFatal, kind, text);
  // After a timeout missing ranks may never connect; after a mismatch they are on their way.
  if (kind == RefusalKind::kMismatch) {
    for (const int rank : missing()) awaited_.insert(rank);
  }
  broadcast(frames_.fatal);
}

void ServerMachine::broadcast(std::string frame, const Link* except) {
  const auto shared = std::make_shared<const std::string>(std::move(frame));
  for (Link* m : members_) {
    if (m != nullptr && m != except) send(*m, shared);
  }
}

void ServerMachine::notify_observers(const std::string& frame) {
  for (auto& [id, l] : links_) {
    if (l.is_observer()) send(l, frame);
  }
}

void ServerMachine::send_heartbeat() {
  if (now_ < next_.heartbeat) return;
  next_.heartbeat = now_ + std::chrono::milliseconds(options_.heartbeat_ms);
  for (Link* m : members_) {
    if (m != nullptr && !m->is_broken()) send_heartbeat_to(*m);
  }
}

void ServerMachine::send_heartbeat_to(Link& l) {
  send(l, FrameWriter(FrameType::kHeartbeat)
              .text(members_[0] != nullptr ? members_[0]->session.activity : "")
              .i64(static_cast<std::int64_t>(l.session.received))
              .finish());
}

void ServerMachine::check_stall() {
  if (!started_ || failed_ || all_left_ || now_ < next_.stall_check) return;
  next_.stall_check = now_ + std::chrono::milliseconds(options_.heartbeat_ms);
  std::vector<StallDetector::Member> here;
  for (const Link* m : members_) {
    if (m == nullptr || !m->alive() || m->session.leaving) continue;
    // A silent rank may be the one that all wait for: without it, a waiting rank would be blamed.
    if (m->doubt) return;
    here.push_back({m->hello.rank, m->session.progress, m->session.activity});
  }
  const std::optional<StallDetector::Stall> stall = stall_watch_.check(here);
  if (!stall) return;
  output_.push_back({Output::Kind::kNotice, 0, stall->text});
  const std::string frame = FrameWriter(FrameType::kNotice).text(stall->text).finish();
  for (const int rank : stall->concerned) {
    if (rank != 0) send(*members_[static_cast<std::size_t>(rank)], frame);
  }
  if (!options_.stall_abort) return;
  fail_members(stall->culprit, {"stalled, ended as --stall-abort asks: " + stall->text}, nullptr);
}

void ServerMachine::sweep(bool paused) {
  for (auto& [id, l] : links_) {
    if (l.is_joining() && now_ >= l.hello_deadline && l.alive()) l.end = "too slow";
    if (!l.is_member()) continue;
    if (paused) {
      l.last_received = now_;
      if (l.doubt) l.doubt->since = l.doubt->next_probe = now_;
      if (l.doubt) l.doubt->check.reset();
    }
    if (l.alive()) check_life(l);
  }
  expire_disconnected(paused);
  for (auto it = links_.begin(); it != links_.end();) {
    Link& l = it->second;
    if (l.alive()) {
      ++it;
      continue;
    }
    if (l.is_member()) on_lost(l);
    output_.push_back({Output::Kind::kClose, l.id, ""});
    it = links_.erase(it);
  }
}

}  // namespace backends
