// The server's members and keys: joining, leaving, failures, requests.
#include <algorithm>

#include "backends/store/store_server.h"

#include "io/base/deadline.h"
#include "io/base/visible_text.h"

namespace backends {
namespace {

bool is_same_process(const Hello& a, const Hello& b) {
  return !a.process.empty() && a.process == b.process;
}

std::string silence_text(int heartbeat_ms) {
  return "does not answer: no heartbeat for " + std::to_string(3 * heartbeat_ms) + " ms";
}

}  // namespace

bool StoreServer::is_superseded(const Hello& h) const {
  if (h.rank < 0 || h.rank >= options_.job.world_size) return false;
  const auto is_older = [&](const Hello& held) {
    return is_same_process(held, h) && h.attempt < held.attempt;
  };
  const Connection* member = members_[static_cast<std::size_t>(h.rank)];
  const auto absent = disconnected_.find(h.rank);
  return (member != nullptr && is_older(member->hello)) ||
         (absent != disconnected_.end() && is_older(absent->second.hello));
}

std::string StoreServer::disagreement_on_rank(const Hello& h, RefusalKind& kind) const {
  const std::string who = member_text(h.rank, h.host, h.pid);
  const Connection* member = members_[static_cast<std::size_t>(h.rank)];
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
  if (same && (member == nullptr || (!member->acknowledged_start && !member->leaving))) return "";
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

void StoreServer::add_member(Connection& c) {
  Connection*& place = members_[static_cast<std::size_t>(c.hello.rank)];
  if (place != nullptr && place->alive()) place->end = "its process has connected again";
  place = &c;
  disconnected_.erase(c.hello.rank);
  left_early_.erase(c.hello.rank);
  c.stage = Connection::Stage::kMember;
  c.send(FrameWriter(FrameType::kWelcome).finish());
  if (!started_) return on_joined();
  c.send(start_frame_);
  if (failed_) c.send(failure_frame_);
}

void StoreServer::handle_member(Connection& c, const Frame& frame) {
  FrameReader in(frame.payload);
  switch (frame.type) {
    case FrameType::kHeartbeat:
      c.activity = base::visible_text(in.text());
      c.progress.waiting_ms = in.u32();
      c.progress.call = base::visible_text(in.text());
      c.progress.links = base::visible_text(in.text());
      return;
    case FrameType::kStartAcknowledged:
      if (!started_) throw MalformedFrame();
      c.acknowledged_start = true;
      return;
    case FrameType::kLeave:
      if (started_ && !c.acknowledged_start && !c.leaving) {  // it gave up waiting for the start
        declare_failure(c, "ended before the others");
      }
      c.leaving = true;
      if (!started_) {
        c.end = "it left before the start";
        left_early_.insert(c.hello.rank);
      }
      return check_all_left();
    case FrameType::kAbandon:
      if (started_ && !c.leaving) declare_failure(c, "ended before the others");
      c.leaving = true;
      return;
    case FrameType::kRootSilent: {
      Connection* const root = members_[0];
      if (!started_ || root == nullptr) return;
      declare_failure(*root, silence_text(options_.heartbeat_ms));
      return tell_silent(*root);
    }
    default:
      break;
  }
  const std::uint32_t request = in.u32();
  const std::string key = in.text();
  switch (frame.type) {
    case FrameType::kSet:
      set(key, in.text());
      return send_reply(c, request, "");
    case FrameType::kGet:
      if (const auto found = values_.find(key); found != values_.end())
        return send_reply(c, request, found->second);
      waiters_[key].emplace_back(&c, request);
      return;
    case FrameType::kAdd: {
      const auto found = values_.find(key);
      std::int64_t sum = in.i64();
      if (found != values_.end()) sum += std::strtoll(found->second.c_str(), nullptr, 10);
      set(key, std::to_string(sum));
      return send_reply(c, request, std::to_string(sum));
    }
    case FrameType::kRemove:
      values_.erase(key);
      return send_reply(c, request, "");
    default:
      throw MalformedFrame();
  }
}

void StoreServer::set(const std::string& key, std::string value) {
  const auto waiting = waiters_.extract(key);
  if (!waiting.empty()) {
    for (const auto& [connection, request] : waiting.mapped())
      send_reply(*connection, request, value);
  }
  values_[key] = std::move(value);
}

void StoreServer::send_reply(Connection& c, std::uint32_t request, const std::string& value) {
  c.send(FrameWriter(FrameType::kReply).u32(request).text(value).finish());
}

std::vector<int> StoreServer::missing() const {
  std::vector<int> ranks;
  for (std::size_t r = 0; r < members_.size(); ++r) {
    const Connection* m = members_[r];
    const int rank = static_cast<int>(r);
    if ((m == nullptr || !m->alive()) && left_early_.count(rank) == 0) ranks.push_back(rank);
  }
  return ranks;
}

std::string StoreServer::progress() const {
  return progress_frame(missing(), {left_early_.begin(), left_early_.end()});
}

void StoreServer::on_joined() {
  if (!left_early_.empty() || !missing().empty()) return broadcast(progress());
  started_ = true;
  FrameWriter start(FrameType::kStart);
  start.bytes(random_bytes(kNonceBytes)).u32(static_cast<std::uint32_t>(members_.size()));
  for (const Connection* m : members_)
    start.text(m->hello.host).text(m->hello.host_id).i32(m->hello.pid);
  start_frame_ = start.finish();
  broadcast(start_frame_);
}

void StoreServer::on_lost(Connection& c) {
  for (auto& [key, list] : waiters_) {
    std::erase_if(list, [&](const auto& waiter) { return waiter.first == &c; });
  }
  std::erase_if(waiters_, [](const auto& entry) { return entry.second.empty(); });
  Connection*& place = members_[static_cast<std::size_t>(c.hello.rank)];
  if (place != &c) return;  // its process has connected again
  place = nullptr;
  if (started_ && !c.leaving) {
    if (c.end == "silence") {
      c.end.clear();  // if it wakes up again, it is told what the others were told
      declare_failure(c, silence_text(options_.heartbeat_ms));
      tell_silent(c);
    } else if (!c.acknowledged_start) {
      const auto limit = std::chrono::milliseconds(3 * options_.heartbeat_ms);
      disconnected_[c.hello.rank] = {c.hello, c.activity, "died: " + c.end,
                                     base::deadline_in(limit)};
    } else {
      declare_failure(c, "died: " + c.end);
    }
  }
  if (started_) {
    check_all_left();
  } else if (fatal_frame_.empty()) {
    broadcast(progress());
  }
}

void StoreServer::expire_disconnected(Clock::time_point now, bool paused) {
  for (auto& [rank, absent] : disconnected_) {
    if (absent.given_up) continue;
    if (paused) absent.until = now + std::chrono::milliseconds(3 * options_.heartbeat_ms);
    if (now < absent.until) continue;
    absent.given_up = true;
    declare_failure(absent.hello, absent.activity, absent.cause);
  }
}

bool StoreServer::awaits_reconnection() const {
  return std::ranges::any_of(disconnected_,
                             [](const auto& entry) { return !entry.second.given_up; });
}

void StoreServer::declare_failure(const Connection& c, const std::string& cause) {
  declare_failure(c.hello, c.activity, cause);
}

void StoreServer::declare_failure(const Hello& who, const std::string& activity,
                                  const std::string& cause) {
  if (failed_) return;  // later failures are consequences of the first
  failed_ = true;
  const std::string text = member_text(who.rank, who.host, who.pid) + " " + cause +
                           "; last activity: " + (activity.empty() ? "unknown" : activity);
  failure_frame_ = FrameWriter(FrameType::kFailure).i32(who.rank).text(text).finish();
  broadcast(failure_frame_, members_[static_cast<std::size_t>(who.rank)]);
}

// Told apart from what the others are told of it; after another failure it has no effect.
void StoreServer::tell_silent(Connection& c) {
  c.send(FrameWriter(FrameType::kFailure)
             .i32(c.hello.rank)
             .text("this rank was silent for " + std::to_string(3 * options_.heartbeat_ms) +
                   " ms and was declared dead by the others, which have ended without it")
             .finish());
}

void StoreServer::check_all_left() {
  const auto done = [](const Connection* m) { return m == nullptr || m->leaving; };
  if (all_left_ || !started_ || awaits_reconnection()) return;
  if (!std::all_of(members_.begin(), members_.end(), done)) return;
  all_left_ = true;
  broadcast(FrameWriter(FrameType::kLeft).finish());
}

void StoreServer::fail_group(RefusalKind kind, const std::string& text) {
  if (started_ || !fatal_frame_.empty()) return;
  fatal_frame_ = refusal_frame(FrameType::kFatal, kind, text);
  // After a timeout missing ranks may never connect; after a mismatch they are on their way.
  if (kind == RefusalKind::kMismatch) {
    for (const int rank : missing()) awaited_.insert(rank);
  }
  broadcast(fatal_frame_);
}

void StoreServer::broadcast(const std::string& frame, const Connection* except) {
  for (Connection* m : members_) {
    if (m != nullptr && m != except) m->send(frame);
  }
}

void StoreServer::send_heartbeat(Clock::time_point now) {
  if (now < next_heartbeat_) return;
  next_heartbeat_ = now + std::chrono::milliseconds(options_.heartbeat_ms);
  broadcast(FrameWriter(FrameType::kHeartbeat)
                .text(members_[0] != nullptr ? members_[0]->activity : "")
                .finish());
}

void StoreServer::check_stall(Clock::time_point now) {
  if (!started_ || failed_ || all_left_ || now < next_stall_check_) return;
  next_stall_check_ = now + std::chrono::milliseconds(options_.heartbeat_ms);
  std::vector<StallWatch::Member> here;
  for (const Connection* m : members_) {
    if (m != nullptr && m->alive() && !m->leaving)
      here.push_back({m->hello.rank, m->progress, m->activity});
  }
  const std::optional<StallWatch::Stall> stall = stall_watch_.check(here);
  if (!stall) return;
  if (options_.notice) options_.notice(stall->text);
  const std::string frame = FrameWriter(FrameType::kNotice).text(stall->text).finish();
  for (const int rank : stall->concerned) {
    if (rank != 0) members_[static_cast<std::size_t>(rank)]->send(frame);
  }
  if (!options_.stall_abort) return;
  failed_ = true;
  failure_frame_ = FrameWriter(FrameType::kFailure)
                       .i32(stall->culprit)
                       .text("stalled, ended as --stall-abort asks: " + stall->text)
                       .finish();
  broadcast(failure_frame_);
}

void StoreServer::sweep(Clock::time_point now) {
  // After a pause of this very process (stopped, starved) silence proves nothing about the others.
  const bool late = now - last_turn_ > std::chrono::milliseconds(options_.heartbeat_ms + 250);
  const auto silence = std::chrono::milliseconds(3 * options_.heartbeat_ms);
  for (Connection& c : connections_) {
    if (!c.is_member() && now >= c.hello_deadline && c.alive()) c.end = "too slow";
    if (!c.is_member() || !c.alive()) continue;
    if (late) c.last_received = now;
    if (now - c.last_received > silence) c.end = "silence";
  }
  expire_disconnected(now, late);
  for (auto it = connections_.begin(); it != connections_.end();) {
    if (it->alive()) {
      ++it;
      continue;
    }
    if (it->is_member()) on_lost(*it);
    it = connections_.erase(it);
  }
}

}  // namespace backends
