// Implements breaks, and the continuation of a stream over another connection.
#include "backends/transport/socket/mesh_link.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "backends/transport/socket/tcp_counters.h"
#include "io/base/files/system_error_text.h"

namespace backends {
namespace {

constexpr std::size_t kReplayAtOnce = 1 << 20;  // bytes per system call

// True if the connection, not the machine, ends with this error.
bool is_break(int error) {
  constexpr std::array kBreaks{ECONNRESET, EPIPE,        ETIMEDOUT, EHOSTUNREACH, ENETUNREACH,
                               ENETDOWN,   ECONNABORTED, ENETRESET, EHOSTDOWN,    ENOTCONN};
  return std::ranges::find(kBreaks, error) != kBreaks.end();
}

std::size_t total_bytes(std::span<const iovec> parts) {
  std::size_t bytes = 0;
  for (const iovec& part : parts) bytes += part.iov_len;
  return bytes;
}

std::string text_of(int error) {
  return error == 0 ? "its other end was closed" : base::system_error_text(error);
}

}  // namespace

MeshLink::MeshLink(Socket socket, const LinkKeys& keys, Resuming resuming)
    : socket_(std::move(socket)),
      is_memory_stable_(resuming.is_memory_stable),
      on_break_(std::move(resuming.on_break)) {
  stream_.emplace(socket_.fd(), keys);
  if (resuming.replay_bytes > 0) replay_.emplace(resuming.replay_bytes);
}

std::optional<LinkCounters> MeshLink::counters() const {
  const std::lock_guard lock(mutex_);
  std::optional<LinkCounters> all = read_tcp_counters(socket_.fd());
  if (all) *all += ended_;
  return all;
}

ssize_t MeshLink::send(std::span<iovec> parts) {
  if (!replay_) return stream_->send(parts);
  const std::lock_guard lock(mutex_);
  if (!is_ready() || !replay_rest()) return -1;
  if (parts.empty()) return 0;
  if (ahead_ > 0) {
    const auto skipped = std::min<std::uint64_t>(ahead_, total_bytes(parts));
    ahead_ -= skipped;
    note_sent(parts, skipped);
    return static_cast<ssize_t>(skipped);
  }
  const ssize_t n = stream_->send(parts);
  if (n > 0) note_sent(parts, static_cast<std::size_t>(n));
  if (n < 0 && !final_ && is_break(errno)) {
    end_connection(errno);
    errno = EAGAIN;
  }
  return n;
}

ssize_t MeshLink::receive(std::span<iovec> parts) {
  if (!replay_) return stream_->receive(parts);
  const std::lock_guard lock(mutex_);
  if (!is_ready()) return -1;
  const ssize_t n = stream_->receive(parts);
  if (n > 0) received_ += static_cast<std::uint64_t>(n);
  if (!final_ && (n == 0 || (n < 0 && is_break(errno)))) {
    end_connection(n == 0 ? 0 : errno);
    errno = EAGAIN;
    return -1;
  }
  return n;
}

// Otherwise sets errno.
bool MeshLink::is_ready() {
  const State state = state_.load(std::memory_order_relaxed);
  if (state == State::kUp) return true;
  errno = state == State::kGivenUp ? EPIPE : EAGAIN;
  return false;
}

void MeshLink::note_sent(std::span<const iovec> parts, std::size_t bytes) {
  for (const iovec& part : parts) {
    const std::size_t taken = std::min(bytes, part.iov_len);
    replay_->add(static_cast<const char*>(part.iov_base), taken);
    bytes -= taken;
  }
  replayed_ = replay_->end();
  if (!is_memory_stable_) replay_->copy_unacknowledged();
}

// Returns true if nothing is left. Otherwise sets errno.
bool MeshLink::replay_rest() {
  while (replayed_ < replay_->end()) {
    std::array<iovec, 4> parts;
    const std::size_t used = replay_->parts_from(replayed_, kReplayAtOnce, parts);
    const ssize_t n = stream_->send({parts.data(), used});
    if (n < 0) {
      if (!final_ && is_break(errno)) {
        end_connection(errno);
        errno = EAGAIN;
      }
      return false;
    }
    replayed_ += static_cast<std::uint64_t>(n);
  }
  replaying_.store(false, std::memory_order_relaxed);
  return true;
}

std::string MeshLink::error_text(int error) const {
  if (!replay_) return stream_->error_text(error);
  const std::lock_guard lock(mutex_);
  return is_given_up() ? failure_ : stream_->error_text(error);
}

void MeshLink::acknowledge(std::uint64_t position) {
  if (!replay_) return;
  const std::lock_guard lock(mutex_);
  // During a replay the kept bytes are still being read.
  if (!is_replaying()) replay_->acknowledge(position);
}

void MeshLink::copy_unacknowledged() {
  if (!replay_) return;
  const std::lock_guard lock(mutex_);
  replay_->copy_unacknowledged();
  if (!is_replaying() || replayed_ >= replay_->begin()) return;
  end_connection(error_);
  fail_to_continue(replayed_);
}

void MeshLink::fail_to_continue(std::uint64_t from) {
  failure_ = "broke: " + text_of(error_) + "; it cannot continue: the peer has received " +
             std::to_string(from) + " bytes of " + std::to_string(replay_->end()) +
             ", and those before " + std::to_string(replay_->begin()) + " are not kept";
  state_.store(State::kGivenUp, std::memory_order_release);
}

void MeshLink::end_resuming() noexcept {
  if (!replay_) return;
  const std::lock_guard lock(mutex_);
  replay_->copy_unacknowledged();
  final_ = true;
}

bool MeshLink::break_off(int error) {
  if (!replay_) return false;
  const std::lock_guard lock(mutex_);
  if (final_) return false;
  if (state_.load(std::memory_order_relaxed) == State::kUp) end_connection(error);
  return !is_given_up();
}

void MeshLink::end_connection(int error) {
  error_ = error;
  ::shutdown(socket_.fd(), SHUT_RDWR);  // the peer notices as well
  state_.store(State::kDown, std::memory_order_release);
  if (on_break_) on_break_();
}

void MeshLink::prepare() {
  const std::lock_guard lock(mutex_);
  if (state_.load(std::memory_order_relaxed) == State::kUp) end_connection(ECONNRESET);
}

std::uint64_t MeshLink::received() const {
  const std::lock_guard lock(mutex_);
  return received_;
}

std::string MeshLink::cause() const {
  const std::lock_guard lock(mutex_);
  return text_of(error_);
}

std::optional<std::uint64_t> MeshLink::resume(Socket socket, const LinkKeys& keys,
                                              std::uint64_t peer_received) {
  const std::lock_guard lock(mutex_);
  if (state_.load(std::memory_order_relaxed) != State::kDown || final_) return std::nullopt;
  const std::uint64_t end = replay_->end();
  if (peer_received < replay_->begin() || peer_received > end + RecordStream::kMaxBatchBytes) {
    fail_to_continue(peer_received);
    return std::nullopt;
  }
  if (const auto counted = read_tcp_counters(socket_.fd())) ended_ += *counted;
  if (dup3(socket.fd(), socket_.fd(), O_CLOEXEC) < 0) return std::nullopt;
  stream_.emplace(socket_.fd(), keys);
  replay_->acknowledge(peer_received);
  replayed_ = std::min(peer_received, end);
  ahead_ = std::max(peer_received, end) - end;
  replaying_.store(replayed_ < end, std::memory_order_relaxed);
  state_.store(State::kUp, std::memory_order_release);
  return end - replayed_;
}

void MeshLink::replay() {
  const std::lock_guard lock(mutex_);
  if (is_ready()) (void)replay_rest();
}

void MeshLink::give_up(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (state_.load(std::memory_order_relaxed) != State::kDown) return;
  failure_ = "broke: " + text_of(error_) + "; " + why;
  state_.store(State::kGivenUp, std::memory_order_release);
}

}  // namespace backends
