// Implements connecting, and waiting for the pairs.
#include "backends/transport/gloo/gloo_transport.h"

#include <gloo/common/error.h>

#include <algorithm>

#include "backends/backend_error.h"

namespace backends {
namespace {

// If a rank dies, the ranks that wait for it also end. This rank names the first whose connection
// ended, unless data still arrives from the one that it waits for.
constexpr auto kGlooGraceTime = std::chrono::milliseconds(100);
constexpr int kDownPairPollMs = 20;  // between looks at a connection that is being restored

bool must_send(const GlooPair& pair) { return pair.has_output() || pair.link().is_replaying(); }

// Gives the mesh its own name, so that it cannot connect to another transport's links.
BackendContext mesh_context(const BackendContext& context) {
  BackendContext own = context;
  own.prefix += "/gloo";
  own.streams = 1;
  return own;
}

}  // namespace

GlooTransport::GlooTransport(const BackendContext& context)
    : Context(context.rank, context.world_size),
      members_(context.members),
      timeout_(context.timeout),
      clock_(context.clock),
      mesh_(mesh_context(context), /*is_memory_stable=*/true),
      own_(members_.size()),
      polled_(members_.size() + 1),
      wait_(mesh_, rank, size) {
  setTimeout(timeout_);
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    auto pair = std::make_unique<GlooPair>(*this, peer, mesh_.fd(peer, 0), mesh_.link(peer, 0));
    own_[static_cast<std::size_t>(peer)] = pair.get();
    pairs_[static_cast<std::size_t>(peer)] = std::move(pair);
  }
}

std::unique_ptr<gloo::transport::Pair>& GlooTransport::createPair(int peer) {
  return pairs_.at(static_cast<std::size_t>(peer));
}

std::unique_ptr<gloo::transport::UnboundBuffer> GlooTransport::createUnboundBuffer(void*,
                                                                                   std::size_t) {
  throw gloo::InvalidOperationException("this transport has bound buffers only");
}

bool GlooTransport::has_down_pair() const {
  return !mesh_.aborted() && std::ranges::any_of(own_, [](const GlooPair* pair) {
    return pair != nullptr && pair->link().is_down() && !pair->link().is_given_up();
  });
}

void GlooTransport::copy_unacknowledged() noexcept {
  for (GlooPair* pair : own_) {
    if (pair != nullptr) pair->link().copy_unacknowledged();
  }
}

void GlooTransport::drop_output() noexcept {
  for (GlooPair* pair : own_) {
    if (pair != nullptr) pair->drop_output();
  }
}

std::string GlooTransport::name_of(const GlooPair& pair) const {
  return "rank " + std::to_string(members_[static_cast<std::size_t>(pair.peer())]);
}

bool GlooTransport::move_all() {
  bool moved = false;
  for (GlooPair* pair : own_) {
    if (pair == nullptr) continue;
    if (must_send(*pair)) moved |= pair->pump_out();
    moved |= pair->pump_in();
  }
  return moved;
}

// The other pairs are read only if poll() has found data there: each read costs a system call, and
// their data is not needed yet.
bool GlooTransport::pump() {
  bool moved = false;
  for (GlooPair* pair : own_) {
    if (pair != nullptr && must_send(*pair)) moved |= pair->pump_out();
  }
  moved |= awaited_->pump_in();
  for (std::size_t i = 0; i < own_.size() && !moved; ++i) {
    if (polled_[i].revents == 0 || own_[i] == awaited_) continue;
    polled_[i].revents = 0;
    moved |= own_[i]->pump_in();
  }
  if (moved) return true;
  if (!awaited_->trouble().empty()) fail(*awaited_);
  return false;
}

// Returns true if anything happened in this time.
bool GlooTransport::poll_pairs(int milliseconds) {
  for (std::size_t i = 0; i < own_.size(); ++i) {
    const GlooPair* pair = own_[i];
    const bool works = pair != nullptr && pair->trouble().empty();
    const bool down = works && pair->link().is_down();
    if (down) milliseconds = std::min(milliseconds, kDownPairPollMs);
    polled_[i] = {works && !down ? pair->fd() : -1,
                  static_cast<short>(POLLIN | (works && must_send(*pair) ? POLLOUT : 0)), 0};
  }
  polled_.back() = {mesh_.wake_fd(), POLLIN, 0};
  const bool any = poll(polled_.data(), polled_.size(), milliseconds) > 0;
  if (polled_.back().revents != 0) mesh_.take_wake();
  return any;
}

void GlooTransport::sleep() {
  // A connection that was given up is not polled: its reason is read here, regardless of the rank
  // that is awaited.
  for (GlooPair* pair : own_)
    if (pair != nullptr && pair->link().is_given_up()) (void)pair->pump_in();
  const auto broken = std::ranges::find_if(
      own_, [](const GlooPair* pair) { return pair != nullptr && !pair->trouble().empty(); });
  if (broken == own_.end()) {
    (void)poll_pairs(clock_.poll_ms(deadline_));
  } else if (!poll_pairs(static_cast<int>(kGlooGraceTime.count()))) {
    fail(**broken);
  }
}

// Other ranks close their connections after a failure, so one that was given up is the cause.
void GlooTransport::fail(const GlooPair& broken) const {
  const auto given_up = std::ranges::find_if(own_, [](const GlooPair* pair) {
    return pair != nullptr && pair->link().is_given_up() && !pair->trouble().empty();
  });
  const GlooPair& cause = given_up == own_.end() ? broken : **given_up;
  throw PeerError("the connection to " + name_of(cause) + " " + cause.trouble());
}

void GlooTransport::on_abort() {
  throw PeerError("aborted: " + mesh_.abort_reason() + "; this rank was waiting for " +
                  name_of(*awaited_));
}

void GlooTransport::on_timeout() {
  throw PeerError("timeout after " + std::to_string(timeout_.count()) + " ms, waiting for " +
                  name_of(*awaited_));
}

}  // namespace backends
