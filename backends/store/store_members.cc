// The server's members and keys: who is here, who left, who died, and what they told each other.
#include <algorithm>

#include "backends/store/store_server.h"

namespace backends {

void StoreServer::handle_member(Connection& c, const Frame& frame) {
  FrameReader in(frame.payload);
  switch (frame.type) {
    case FrameType::kHeartbeat:
      c.activity = in.text();
      return;
    case FrameType::kLeave:
      c.leaving = true;
      return check_goodbyes();
    case FrameType::kAbandon:
      if (started_ && !c.leaving) declare_failure(c, "ended before the others");
      c.leaving = true;
      return;
    default:
      break;
  }
  const std::uint32_t request = in.u32();
  const std::string key = in.text();
  switch (frame.type) {
    case FrameType::kSet:
      set(key, in.text());
      return answer(c, request, "");
    case FrameType::kGet:
      if (const auto found = values_.find(key); found != values_.end())
        return answer(c, request, found->second);
      waiters_[key].emplace_back(&c, request);
      return;
    case FrameType::kAdd: {
      const auto found = values_.find(key);
      std::int64_t sum = in.i64();
      if (found != values_.end()) sum += std::strtoll(found->second.c_str(), nullptr, 10);
      set(key, std::to_string(sum));
      return answer(c, request, std::to_string(sum));
    }
    case FrameType::kRemove:
      values_.erase(key);
      return answer(c, request, "");
    default:
      throw MalformedFrame();
  }
}

void StoreServer::set(const std::string& key, std::string value) {
  const auto waiting = waiters_.extract(key);
  if (!waiting.empty()) {
    for (const auto& [connection, request] : waiting.mapped()) answer(*connection, request, value);
  }
  values_[key] = std::move(value);
}

void StoreServer::answer(Connection& c, std::uint32_t request, const std::string& value) {
  c.send(FrameWriter(FrameType::kReply).u32(request).text(value).finish());
}

std::vector<int> StoreServer::missing() const {
  std::vector<int> ranks;
  for (std::size_t r = 0; r < members_.size(); ++r) {
    if (members_[r] == nullptr) ranks.push_back(static_cast<int>(r));
  }
  return ranks;
}

void StoreServer::joined() {
  const std::vector<int> absent = missing();
  if (!absent.empty()) return broadcast(progress_frame(absent));
  started_ = true;
  FrameWriter start(FrameType::kStart);
  start.u32(static_cast<std::uint32_t>(members_.size()));
  for (const Connection* m : members_)
    start.text(m->hello.host).text(m->hello.host_id).i32(m->hello.pid);
  broadcast(start.finish());
}

void StoreServer::lost(Connection& c) {
  for (auto& [key, list] : waiters_) {
    std::erase_if(list, [&](const auto& waiter) { return waiter.first == &c; });
  }
  std::erase_if(waiters_, [](const auto& entry) { return entry.second.empty(); });
  if (started_ && !c.leaving) {
    if (c.end == "silence") {
      c.end.clear();  // tell it, should it wake up again, what the others were told
      declare_failure(c, "does not answer: no heartbeat for " +
                             std::to_string(3 * options_.heartbeat_ms) + " ms");
      c.send(FrameWriter(FrameType::kFailure)
                 .i32(c.hello.rank)
                 .text("this rank was silent for " + std::to_string(3 * options_.heartbeat_ms) +
                       " ms and was declared dead by the others")
                 .finish());
    } else {
      declare_failure(c, "died: " + c.end);
    }
  }
  if (members_[static_cast<std::size_t>(c.hello.rank)] == &c)
    members_[static_cast<std::size_t>(c.hello.rank)] = nullptr;
  if (started_) {
    check_goodbyes();
  } else if (fatal_frame_.empty()) {
    broadcast(progress_frame(missing()));
  }
}

void StoreServer::declare_failure(const Connection& c, const std::string& cause) {
  if (failed_) return;  // who falls after the first falls because of it
  failed_ = true;
  const std::string text = member_text(c.hello.rank, c.hello.host, c.hello.pid) + " " + cause +
                           "; last activity: " + (c.activity.empty() ? "unknown" : c.activity);
  broadcast(FrameWriter(FrameType::kFailure).i32(c.hello.rank).text(text).finish(), &c);
}

void StoreServer::check_goodbyes() {
  const auto done = [](const Connection* m) { return m == nullptr || m->leaving; };
  if (parted_ || !started_ || !std::all_of(members_.begin(), members_.end(), done)) return;
  parted_ = true;
  broadcast(FrameWriter(FrameType::kLeft).finish());
}

void StoreServer::fail_group(RefusalKind kind, const std::string& text) {
  if (started_ || !fatal_frame_.empty()) return;
  fatal_frame_ = refusal_frame(FrameType::kFatal, kind, text);
  // Ranks that never came may never come; those of a job that contradicts itself are on their way.
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

void StoreServer::beat(Clock::time_point now) {
  if (now < next_beat_) return;
  next_beat_ = now + std::chrono::milliseconds(options_.heartbeat_ms);
  broadcast(FrameWriter(FrameType::kHeartbeat)
                .text(members_[0] != nullptr ? members_[0]->activity : "")
                .finish());
}

}  // namespace backends
