// Notices broken connections, and carries out what their machines decide.
#include "backends/transport/socket/mesh_repair.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "backends/backend_error.h"
#include "backends/relay/relay_route.h"
#include "backends/transport/repair/link_patience.h"
#include "backends/transport/socket/socket_mesh.h"

namespace backends {
namespace {

// Between looks at connections that no call uses. Their users notice a break at once.
constexpr auto kLookTime = std::chrono::milliseconds(500);
constexpr int kMaxHalfClosedLooks = 2;
constexpr int kRepairPollMs = 20;

}  // namespace

// The bytes that both ends' kernels hold, or all four and the relay if the connection may go
// through it, with room for a segment beyond that.
std::size_t replay_bytes(bool may_be_relayed) {
  constexpr std::size_t kSlack = 512 << 10;
  const std::size_t relayed = may_be_relayed ? kMaxBytesInFlight + kRelayBufferBytes : 0;
  return bytes_in_flight() + relayed + kSlack;
}

MeshRepair::MeshRepair(SocketMesh& mesh, MeshConnector& connector)
    : mesh_(mesh),
      connector_(connector),
      context_(connector.context()),
      half_closed_(mesh.links_.size()) {
  connector_.set_client(*this);
}

void MeshRepair::run(const std::stop_token& stop) {
  while (!stop.stop_requested() && !mesh_.aborted() && !mesh_.has_ended()) {
    check_links();
    try {
      connector_.connect();
      wait();
    } catch (const std::exception& error) {  // of the machine, e.g. no descriptors are left
      for (const auto& link : mesh_.links_) {
        if (link && link->is_down()) link->give_up(error.what());
      }
    }
    connector_.sweep();
  }
  for (MeshTarget& target : connector_.targets()) target.machine.end(LinkMachine::State::kEnded);
  connector_.close();
}

void MeshRepair::wait() {
  std::vector<pollfd> polled = connector_.polled();
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
  connector_.serve(polled);
  for (const auto& link : mesh_.links_) {
    if (link && link->is_replaying()) link->replay();
  }
}

MeshLink& MeshRepair::link_of(const MeshTarget& target) const {
  return *mesh_.links_[connector_.index_of(target)];
}

bool MeshRepair::is_oversubscribed() const { return mesh_.is_oversubscribed(); }

bool MeshRepair::has_broken() const {
  return std::ranges::any_of(mesh_.links_, [](const std::unique_ptr<MeshLink>& link) {
    return link && link->is_down() && !link->is_given_up();
  });
}

// ---- Breaks.

void MeshRepair::check_links() {
  const auto now = context_.clock.now();
  const bool looks = now >= next_look_;
  if (looks) next_look_ = now + kLookTime;
  for (MeshTarget& target : connector_.targets()) {
    if (target.peer == context_.rank) continue;
    MeshLink& link = link_of(target);
    int& half_closed = half_closed_[connector_.index_of(target)];
    if (looks && !link.is_down()) look_at(link, half_closed);
    if (link.is_given_up()) target.machine.end(LinkMachine::State::kGivenUp);
    if (!link.is_down()) continue;
    if (target.machine.on_break(now, starts_at_relay(context_, target.peer))) half_closed = 0;
    report_break(target, false);
    if (target.machine.on_time(now)) link.give_up(missing_text(target));
  }
}

// Data of a peer that has closed its end are left to be read for a while: it may have failed, and
// they may say why.
void MeshRepair::look_at(MeshLink& link, int& half_closed) const {
  pollfd polled{link.fd(), POLLRDHUP, 0};
  (void)poll(&polled, 1, 0);
  int left = 0;
  if ((polled.revents & (POLLERR | POLLHUP)) != 0) {
    (void)link.break_off(ECONNRESET);
  } else if ((polled.revents & POLLRDHUP) != 0) {
    if (ioctl(link.fd(), FIONREAD, &left) != 0 || left == 0 || ++half_closed > kMaxHalfClosedLooks)
      (void)link.break_off(0);
  } else if (is_silent(link.fd(), context_.link_patience / 3)) {
    (void)link.break_off(ETIMEDOUT);
  }
}

void MeshRepair::report_break(MeshTarget& target, bool in_any_case) {
  if (!target.machine.take_report(context_.clock.now(), in_any_case) || !context_.notice) return;
  const std::string through = target.machine.is_relayed()
                                  ? " through the relay at " + to_string(context_.relay->relay())
                                  : "";
  context_.notice(lost_link_text(name_of(target.peer) + through, link_of(target).cause(),
                                 context_.link_patience));
}

// Why a link is given up at the end of the patience.
std::string MeshRepair::missing_text(const MeshTarget& target) const {
  const std::string reach = context_.watch.reach_text(context_.group_rank(target.peer));
  if (!target.machine.is_relayed()) {
    const std::string to = target.to.port != 0 ? to_string(target.to) : name_of(target.peer);
    return no_connection_text("no new connection with " + to, context_.link_patience, reach);
  }
  const std::string relay = "the relay at " + to_string(context_.relay->relay());
  const bool waits = connector_.attempt_at(MeshAttempt::Stage::kRelayWaiting, &target) != nullptr;
  return no_connection_text(
      waits ? "its other end has not come to " + relay : "no new connection through " + relay,
      context_.link_patience, reach);
}

// ---- New connections.

Deadline MeshRepair::direct_limit() const {
  return context_.clock.deadline_in(kLinkHandshakeTimeout);
}

void MeshRepair::on_connect(MeshTarget& target) {
  if (target.error == ECONNREFUSED && target.machine.on_refused())
    link_of(target).give_up(refused_text(to_string(target.to), name_of(target.peer)));
}

bool MeshRepair::may_take(const MeshHello& hello) {
  if (hello.stream < 0 || hello.stream >= mesh_.streams()) return false;
  MeshTarget& target = connector_.target_of(hello.from, hello.stream);
  if (link_of(target).is_given_up()) target.machine.end(LinkMachine::State::kGivenUp);
  return target.machine.may_take(hello.epoch);
}

void MeshRepair::on_proof(const MeshHello& hello) {
  MeshTarget& target = connector_.target_of(hello.from, hello.stream);
  if (target.machine.on_proof(hello.epoch, context_.clock.now(),
                              starts_at_relay(context_, target.peer)))
    link_of(target).prepare();
}

std::uint64_t MeshRepair::received(int peer, int stream) const {
  return mesh_.links_[mesh_.index(peer, stream)]->received();
}

bool MeshRepair::use(MeshAttempt& attempt, MeshTarget& target, const LinkKeys& keys) {
  MeshLink& link = link_of(target);
  if (!attempt.outgoing && !target.machine.numbers().is_current(attempt.hello.epoch))
    return false;  // a newer one follows
  report_break(target, true);
  const auto again = link.resume(std::move(attempt.socket), keys, attempt.peer_received);
  if (!again) return false;
  if (mesh_.aborted()) shutdown(link.fd(), SHUT_WR);  // abort() may have come before the connection
  mesh_.wake_caller();
  const auto lasted = target.machine.on_established(context_.clock.now(), attempt.is_relayed());
  if (context_.notice) context_.notice(restored_link_text(name_of(target.peer), lasted, *again));
  return true;
}

// An error of one connection is that of its link only.
bool MeshRepair::handles(const MeshAttempt& attempt, const std::exception& error) {
  if (attempt.target == nullptr && !attempt.is_proved) return true;  // the peer may be no rank
  link_of(attempt.target != nullptr
              ? *attempt.target
              : connector_.target_of(attempt.hello.from, attempt.hello.stream))
      .give_up(error.what());
  return true;
}

}  // namespace backends
