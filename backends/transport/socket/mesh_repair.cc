// Restores broken connections of a mesh, in the mesh's thread.
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "backends/backend_error.h"
#include "backends/relay/relay_route.h"
#include "backends/transport/socket/link_patience.h"
#include "backends/transport/socket/mesh_setup.h"

namespace backends {
namespace {

// Between looks at connections that no call uses. Their users notice a break at once.
constexpr auto kLookTime = std::chrono::milliseconds(500);
constexpr int kMaxHalfClosedLooks = 2;
constexpr int kRepairPollMs = 20;
// A break is reported if the peer's process has not proved gone by then.
constexpr auto kReportTime = std::chrono::milliseconds(200);

}  // namespace

void MeshSetup::repair(const std::stop_token& stop) {
  repairing_ = true;
  while (!stop.stop_requested() && !mesh_.aborted() && !mesh_.has_ended()) {
    check_links();
    try {
      for (Target& target : targets_) connect(target);
      wait_for_repairs();
    } catch (const std::exception& error) {  // of the machine, e.g. no descriptors are left
      for (const auto& link : mesh_.links_) {
        if (link && link->is_down()) link->give_up(error.what());
      }
    }
    sweep();
  }
  attempts_.clear();
  listener_.close();
}

void MeshSetup::wait_for_repairs() {
  std::vector<pollfd> polled = polled_attempts();
  const std::size_t own = polled.size();
  polled.push_back({mesh_.repair_wake_.fd(), POLLIN, 0});
  for (const auto& link : mesh_.links_) {
    if (link && link->is_replaying() && !link->is_down())
      polled.push_back({link->fd(), POLLOUT, 0});
  }
  const int time = has_broken() ? kRepairPollMs : static_cast<int>(kLookTime.count());
  if (poll(polled.data(), polled.size(), time) <= 0) return;
  if (polled[own].revents != 0) mesh_.repair_wake_.clear();
  polled.resize(own);
  serve_ready(polled);
  for (const auto& link : mesh_.links_) {
    if (link && link->is_replaying()) link->replay();
  }
}

// An error of one connection is that of its link only.
void MeshSetup::serve_or_give_up(Attempt& attempt) {
  try {
    serve(attempt);
  } catch (const std::exception& error) {
    attempt.stage = Stage::kFailed;
    if (attempt.target == nullptr && !attempt.is_proved) return;  // the peer may be no rank
    const Target& target = attempt.target != nullptr
                               ? *attempt.target
                               : target_of(attempt.hello.from, attempt.hello.stream);
    if (const auto& link = link_of(target)) link->give_up(error.what());
  }
}

bool MeshSetup::has_broken() const {
  return std::ranges::any_of(mesh_.links_, [](const std::unique_ptr<MeshLink>& link) {
    return link && link->is_down() && !link->is_given_up();
  });
}

void MeshSetup::check_links() {
  const auto now = context_.clock.now();
  const bool looks = now >= next_look_;
  if (looks) next_look_ = now + kLookTime;
  for (Target& target : targets_) {
    MeshLink* const link = link_of(target).get();
    if (link == nullptr || link->is_given_up()) continue;
    if (looks && !link->is_down()) look_at(*link, target.repair);
    if (!link->is_down()) continue;
    if (!target.repair.broken) begin_repair(target);
    continue_repair(target);
  }
}

// Data of a peer that has closed its end are left to be read for a while: it may have failed, and
// they may say why.
void MeshSetup::look_at(MeshLink& link, Repair& repair) {
  pollfd polled{link.fd(), POLLRDHUP, 0};
  (void)poll(&polled, 1, 0);
  int left = 0;
  if ((polled.revents & (POLLERR | POLLHUP)) != 0) {
    (void)link.break_off(ECONNRESET);
  } else if ((polled.revents & POLLRDHUP) != 0) {
    if (ioctl(link.fd(), FIONREAD, &left) != 0 || left == 0 ||
        ++repair.half_closed > kMaxHalfClosedLooks)
      (void)link.break_off(0);
  } else if (is_silent(link.fd(), context_.link_patience / 3)) {
    (void)link.break_off(ETIMEDOUT);
  }
}

void MeshSetup::begin_repair(Target& target) {
  const auto now = context_.clock.now();
  target.repair = {.broken = true,
                   .since = now,
                   .report = now + kReportTime,
                   .until = now + context_.link_patience};
  target.next_direct = target.next_relayed = {};
  target.relay_from = relay_start(target);
  target.wrong_challenges = target.wrong_relayed_challenges = 0;
}

void MeshSetup::continue_repair(Target& target) {
  const auto now = context_.clock.now();
  if (now >= target.repair.report) report_break(target);
  if (now >= target.repair.until) link_of(target)->give_up(missing_text(target));
}

// Why a link is given up at the end of the patience.
std::string MeshSetup::missing_text(const Target& target) const {
  const std::string within =
      " " + within_patience_text(context_.link_patience) +
      after_semicolon(context_.watch.reach_text(context_.group_rank(target.peer)));
  if (!target.relayed)
    return "no new connection with " +
           (target.to.port != 0 ? to_string(target.to) : name_of(target.peer)) + within;
  const std::string relay = "the relay at " + to_string(context_.relay->relay());
  const bool waits = std::ranges::any_of(attempts_, [&](const Attempt& a) {
    return a.target == &target && a.stage == Stage::kRelayWaiting;
  });
  return waits ? "its other end has not come to " + relay + within
               : "no new connection through " + relay + within;
}

// A hello of an earlier connection has an old epoch. All attempts to make one connection have the
// same, and the peer ends the handshake on one of them.
bool MeshSetup::may_replace(const MeshHello& hello) const {
  if (hello.stream < 0 || hello.stream >= mesh_.streams()) return false;
  const MeshLink& link = *mesh_.links_[mesh_.index(hello.from, hello.stream)];
  if (link.is_given_up()) return false;
  return hello.epoch > link.epoch() || (hello.epoch == link.epoch() && link.is_down());
}

// The peer has proved that the connection is its own.
void MeshSetup::prepare_link(const Attempt& attempt) {
  Target& target = target_of(attempt.hello.from, attempt.hello.stream);
  link_of(target)->prepare(attempt.hello.epoch);
  if (!target.repair.broken) begin_repair(target);
}

std::uint64_t MeshSetup::received_from(int peer, int stream) const {
  return repairing_ ? mesh_.links_[mesh_.index(peer, stream)]->received() : 0;
}

// Returns true if the link continues over the connection.
bool MeshSetup::resume(Attempt& attempt, Target& target, const LinkKeys& keys) {
  MeshLink& link = *link_of(target);
  if (!attempt.outgoing && attempt.hello.epoch != link.epoch())
    return false;  // a newer one follows
  report_break(target);
  const auto again = link.resume(std::move(attempt.socket), keys, attempt.peer_received);
  if (!again) return false;
  if (mesh_.aborted()) shutdown(link.fd(), SHUT_WR);  // abort() may have come before the connection
  mesh_.wake_caller();
  if (context_.notice)
    context_.notice(restored_link_text(name_of(target.peer),
                                       context_.clock.now() - target.repair.since, *again));
  target.repair = {};
  return true;
}

void MeshSetup::report_break(Target& target) {
  Repair& repair = target.repair;
  if (!repair.broken || repair.reported) return;
  repair.reported = true;
  if (!context_.notice) return;
  const std::string through =
      target.relayed ? " through the relay at " + to_string(context_.relay->relay()) : "";
  context_.notice(lost_link_text(name_of(target.peer) + through, link_of(target)->cause(),
                                 context_.link_patience));
}

}  // namespace backends
