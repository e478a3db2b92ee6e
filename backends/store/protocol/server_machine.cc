// Implements the server's loop, and the authentication of connections.
#include "backends/store/protocol/server_machine.h"

#include <algorithm>

namespace backends {

ServerMachine::ServerMachine(Options options, Time now)
    : options_(std::move(options)),
      now_(now),
      last_tick_(now),
      members_(static_cast<std::size_t>(options_.job.world_size), nullptr),
      stall_watch_(std::chrono::milliseconds(options_.stall_after_ms)),
      next_{.heartbeat = now} {}

std::size_t ServerMachine::Link::longest_frame() const {
  return stage == Stage::kMember     ? kFrameBytes + kSealBytes
         : stage == Stage::kSettings ? kSettingsBytes + kSealBytes
                                     : kUnauthenticatedFrameBytes;
}

void ServerMachine::opened(LinkId link, const std::string& peer, Time now) {
  now_ = now;
  // Close the oldest: a rank authenticates within milliseconds.
  if (Link* oldest = oldest_of(&Link::is_joining, kMaxUnauthenticated))
    oldest->end = "too many unauthenticated connections";
  Link& l = links_[link];
  l.id = link;
  l.peer = peer;
  l.last_received = now;
  l.hello_deadline = now + kHandshakeTimeout;
}

ServerMachine::Link* ServerMachine::oldest_of(bool (Link::*is_such)() const, std::size_t most) {
  const auto lives = [&](const auto& entry) {
    return (entry.second.*is_such)() && entry.second.alive();
  };
  if (static_cast<std::size_t>(std::ranges::count_if(links_, lives)) < most) return nullptr;
  return &std::ranges::find_if(links_, lives)->second;
}

void ServerMachine::received(LinkId link, std::string_view bytes, Time now) {
  now_ = now;
  const auto found = links_.find(link);
  if (found == links_.end() || !found->second.alive()) return;
  Link& l = found->second;
  if (l.is_broken()) return;
  l.last_received = now;
  l.parser.append(bytes.data(), bytes.size());
  try {
    while (l.alive()) {
      std::optional<Frame> frame = l.parser.next(l.longest_frame());
      if (!frame) break;
      l.seals.to_server.open(*frame);
      if (l.is_member()) {
        ++l.session.received;
        l.is_used = true;
      }
      handle(l, *frame);
    }
  } catch (const MalformedFrame&) {
    l.end = "its connection carried a frame that is damaged or forged";
  }
  if (l.doubt && l.alive()) {
    heard_again(l, *l.doubt);
    l.doubt.reset();
  }
}

void ServerMachine::closed(LinkId link, const std::string& cause, Ending ending) {
  const auto found = links_.find(link);
  if (found == links_.end() || !found->second.alive() || found->second.is_broken()) return;
  Link& l = found->second;
  if (!l.is_member() || !may_continue(l)) {
    l.end = cause;
    return;
  }
  break_off(l, cause);
  // A member also closes an attempt to continue whose welcome has not come in time.
  l.doubt->finished = ending == Ending::kFinished && (l.is_used || !l.hello.received);
}

void ServerMachine::give_up(RefusalKind kind, const std::string& text) { fail_group(kind, text); }

void ServerMachine::set_status(const std::string& text) {
  frames_.status = FrameWriter(FrameType::kStatus).text(text).finish();
  notify_observers(frames_.status);
}

void ServerMachine::tick(Time now) {
  now_ = now;
  sweep(now - last_tick_ > std::chrono::milliseconds(options_.heartbeat_ms + 250));
  send_progress();
  send_departures();
  send_heartbeat();
  check_stall();
  last_tick_ = now;
}

Time ServerMachine::next_tick() const {
  Time next = std::min(next_.heartbeat, last_tick_ + std::chrono::milliseconds(250));
  if (!departed_.empty()) next = std::min(next, next_.departures);
  for (const auto& [id, l] : links_) {
    if (l.is_joining()) next = std::min(next, l.hello_deadline);
  }
  return next;
}

bool ServerMachine::may_end() const {
  return std::ranges::none_of(links_, [](const auto& entry) { return entry.second.is_member(); }) &&
         awaited_.empty() && !awaits_reconnection();
}

void ServerMachine::notify_end() {
  const std::string left = FrameWriter(FrameType::kLeft).finish();
  if (started_ && !failed_ && !all_left_) broadcast(left);
  notify_observers(frames_.fatal.empty() ? left : frames_.fatal);
}

void ServerMachine::send(Link& l, std::string frame) {
  send(l, std::make_shared<const std::string>(std::move(frame)));
}

void ServerMachine::send(Link& l, const SentFrames::Shared& frame) {
  if (!l.alive()) return;
  if (l.is_member()) l.session.sent.add(frame);
  if (!l.is_broken()) put_out(l, *frame);
}

void ServerMachine::put_out(Link& l, const std::string& frame) {
  output_.push_back({Output::Kind::kSend, l.id, l.seals.to_client.close(frame)});
}

void ServerMachine::handle(Link& l, const Frame& frame) {
  switch (l.stage) {
    case Link::Stage::kHello:
      return on_hello(l, frame);
    case Link::Stage::kProof:
      return on_proof(l, frame);
    case Link::Stage::kSettings:
      return on_settings(l, frame);
    case Link::Stage::kMember:
      return handle_member(l, frame);
    case Link::Stage::kObserver:
      throw MalformedFrame();  // an observer sends nothing
  }
}

void ServerMachine::on_hello(Link& l, const Frame& frame) {
  if (frame.type != FrameType::kHello) throw MalformedFrame();
  l.hello = read_hello(frame.payload);
  if (l.hello.version != options_.job.version) {
    return refuse(l, RefusalKind::kMismatch,
                  "protocol version " + std::to_string(options_.job.version) + " on rank 0 and " +
                      std::to_string(l.hello.version) + " at " + l.peer);
  }
  l.hello_payload = frame.payload;
  l.server_nonce = options_.random(kNonceBytes);
  l.stage = Link::Stage::kProof;
  send(l, FrameWriter(FrameType::kChallenge)
              .bytes(l.server_nonce)
              .bytes(server_proof(options_.secret, l.hello_payload, l.server_nonce))
              .finish());
}

void ServerMachine::on_proof(Link& l, const Frame& frame) {
  const std::string proof = client_proof(options_.secret, l.hello_payload, l.server_nonce);
  if (frame.type != FrameType::kProof) throw MalformedFrame();
  const bool observes = l.hello.rank == kObserverRank;
  if (!equal_in_constant_time(frame.payload, proof)) {
    return refuse(l, RefusalKind::kAuthentication,
                  (observes ? "an observer"
                            : "a process that calls itself rank " + std::to_string(l.hello.rank)) +
                      " at " + l.peer + std::string(kUnprovedText));
  }
  l.seals = make_seals(options_.secret, l.hello_payload, l.server_nonce);
  if (observes) return add_observer(l);
  if (is_superseded(l.hello)) {
    l.end = "its process has connected again";
    return;
  }
  decide(l);
}

void ServerMachine::on_settings(Link& l, const Frame& frame) {
  if (frame.type != FrameType::kSettings) throw MalformedFrame();
  l.hello.settings = read_settings(frame.payload);
  if (settings_digest(l.hello.settings) != l.hello.settings_digest) throw MalformedFrame();
  decide(l);
}

void ServerMachine::decide(Link& l) {
  const Hello &job = options_.job, &h = l.hello;
  RefusalKind kind{};
  std::string text = disagreement(h, kind);
  const bool same_settings = h.settings_digest == job.settings_digest;
  if (text.empty() && same_settings) text = disagreement_on_rank(h, kind);
  // A group that was given up has its reason, which is sent to all ranks.
  if (text.empty() && !same_settings && frames_.fatal.empty()) {
    if (l.stage == Link::Stage::kProof) {
      l.stage = Link::Stage::kSettings;
      return send(l, FrameWriter(FrameType::kAskSettings).finish());
    }
    text = settings_difference(job.settings, member_text(0, job.host, job.pid), h.settings,
                               member_text(h.rank, h.host, h.pid));
  }
  if (!text.empty()) {
    refuse(l, kind, text);
    // A rank with the secret and a contradicting configuration belongs to this job: the group
    // cannot form.
    if (kind == RefusalKind::kMismatch && !started_) fail_group(kind, text);
    awaited_.erase(l.hello.rank);
    return;
  }
  if (!frames_.fatal.empty()) {
    send(l, frames_.fatal);
    l.end = "refused";
    awaited_.erase(l.hello.rank);
    return;
  }
  add_member(l);
}

void ServerMachine::add_observer(Link& l) {
  if (Link* oldest = oldest_of(&Link::is_observer, kMaxObservers)) {
    send(*oldest, refusal_frame(FrameType::kRefuse, RefusalKind::kPeer,
                                "this observer gave way to newer observers: a job serves " +
                                    std::to_string(kMaxObservers)));
    oldest->end = "too many observers";
  }
  l.stage = Link::Stage::kObserver;
  send(l, welcome_frame(0));
  send(l, absence_frame());
  if (!frames_.status.empty()) send(l, frames_.status);
}

std::string ServerMachine::disagreement(const Hello& h, RefusalKind& kind) const {
  const Hello& job = options_.job;
  const std::string who = member_text(h.rank, h.host, h.pid),
                    here = member_text(0, job.host, job.pid);
  const auto differ = [&](const char* what, const std::string& ours, const std::string& theirs) {
    return std::string(what) + " differs: \"" + ours + "\" on " + here + ", \"" + theirs +
           "\" on " + who;
  };
  kind = RefusalKind::kOtherJob;
  if (h.job != job.job) return differ("job id", job.job, h.job);
  if (h.port != 0 && h.port != options_.port)
    return who + " was relayed from port " + std::to_string(h.port) + " to port " +
           std::to_string(options_.port) + " of " + here + " by a process that is not of this job";
  kind = RefusalKind::kMismatch;
  if (h.world_size != job.world_size)
    return differ("world size", std::to_string(job.world_size), std::to_string(h.world_size));
  if (h.rank < 0 || h.rank >= job.world_size)
    return "rank " + std::to_string(h.rank) + " is outside a world of " +
           std::to_string(job.world_size);
  if (h.build != job.build) return differ("engine build", job.build, h.build);
  return "";
}

void ServerMachine::refuse(Link& l, RefusalKind kind, const std::string& text) {
  send(l, refusal_frame(FrameType::kRefuse, kind, text));
  l.end = "refused";
  // A rank of another job that searches for its own rank 0 connects repeatedly.
  const bool repeated = kind == RefusalKind::kOtherJob && text == last_refusal_;
  last_refusal_ = text;
  if (!repeated && now_ >= next_.refusal_notice) {
    next_.refusal_notice = now_ + std::chrono::seconds(1);
    output_.push_back({Output::Kind::kNotice, 0, "refused a connection: " + text});
  }
}

}  // namespace backends
