// Requests of the store's client, joining and leaving. The receiving thread is in store_watch.cc.
#include "backends/store/store_client.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "backends/backend_error.h"
#include "backends/open_files.h"
#include "io/base/deadline.h"

namespace backends {
namespace {

constexpr auto kRequestTime = std::chrono::seconds(30);  // of requests that rank 0 answers at once
constexpr std::size_t kActivityBytes = 200;

}  // namespace

TcpStore::TcpStore(StoreSession session, StoreClientOptions options)
    : options_(std::move(options)),
      socket_(std::move(session.socket)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      parser_(std::move(session.parser)),
      incoming_(std::move(session.seals.to_client)),
      outgoing_(std::move(session.seals.to_server)) {
  if (!wake_) throw PeerError("cannot make an event descriptor: " + system_error_text(errno));
  last_received_ = next_heartbeat_ = Clock::now();
  thread_ = std::thread([this] { watch(); });
}

TcpStore::~TcpStore() {
  bool orderly = false, may_come_again = false;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    orderly = leaving_ || failure_ || !started_;
    may_come_again = lost_ && !started_;
  }
  if (!may_come_again)
    (void)send(FrameWriter(orderly ? FrameType::kLeave : FrameType::kAbandon).finish());
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(wake_.fd(), &one, sizeof one);
  thread_.join();
}

bool TcpStore::send(const std::string& frame) {
  const std::lock_guard lock(write_mutex_);
  if (write_by(socket_.fd(), outgoing_.close(frame), base::deadline_in(std::chrono::seconds(5))))
    return true;
  shutdown(socket_.fd(),
           SHUT_RDWR);  // part of a frame was sent: the connection cannot be used any more
  return false;
}

std::string TcpStore::request(FrameType type, std::string_view key,
                              const std::function<void(FrameWriter&)>& rest,
                              std::chrono::milliseconds timeout) {
  const Deadline deadline = base::deadline_in(timeout);
  std::uint32_t id = 0;
  {
    const std::lock_guard lock(mutex_);
    id = next_request_++;
    replies_.emplace(id, std::nullopt);
  }
  FrameWriter w(type);
  w.u32(id).text(key);
  rest(w);
  const std::string frame = w.finish();
  const bool sent = frame.size() <= kFrameBytes && send(frame);
  std::unique_lock lock(mutex_);
  const auto over = [&] { return replies_[id].has_value() || failure_ || lost_ || left_; };
  if (sent) changed_.wait_until(lock, deadline, over);
  const std::optional<std::string> reply = std::move(replies_[id]);
  replies_.erase(id);
  if (reply) return *reply;
  const std::string what = "store key \"" + std::string(key) + "\": ";
  if (failure_) throw PeerError(what + *failure_);
  if (left_ || lost_)
    throw PeerError(what + (left_
                                ? "rank 0 has left the group"
                                : "no connection to rank 0 at " + options_.server + ": " + *lost_));
  if (!sent) throw PeerError(what + "cannot be sent to rank 0 at " + options_.server);
  throw PeerError(what + "not set after " + std::to_string(timeout.count()) + " ms");
}

void TcpStore::set(std::string_view key, std::string_view value) {
  request(
      FrameType::kSet, key, [&](FrameWriter& w) { w.text(value); }, kRequestTime);
}

std::string TcpStore::get(std::string_view key, std::chrono::milliseconds timeout) {
  return request(
      FrameType::kGet, key, [](FrameWriter&) {}, timeout);
}

std::int64_t TcpStore::add(std::string_view key, std::int64_t amount) {
  return std::strtoll(
      request(
          FrameType::kAdd, key, [&](FrameWriter& w) { w.i64(amount); }, kRequestTime)
          .c_str(),
      nullptr, 10);
}

void TcpStore::remove(std::string_view key) {
  request(
      FrameType::kRemove, key, [](FrameWriter&) {}, kRequestTime);
}

TcpStore::StartState TcpStore::wait_for_start(Deadline until) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, until, [&] { return started_ || fatal_ || lost_; });
  if (fatal_) throw_refusal(fatal_->first, fatal_->second);
  return started_ ? StartState::kStarted : lost_ ? StartState::kDisconnected : StartState::kWaiting;
}

TcpStore::Absent TcpStore::absent() const {
  const std::lock_guard lock(mutex_);
  return absent_;
}

std::vector<PeerInfo> TcpStore::peers() const {
  const std::lock_guard lock(mutex_);
  return peers_;
}

std::string TcpStore::group_nonce() const {
  const std::lock_guard lock(mutex_);
  return group_nonce_;
}

bool TcpStore::one_host() const {
  const std::lock_guard lock(mutex_);
  return one_host_;
}

void TcpStore::set_activity(std::string_view activity) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    activity_.assign(activity.substr(0, kActivityBytes));
  } catch (const std::exception&) {
    // Out of memory: keep the older activity.
  }
}

void TcpStore::set_progress_source(std::function<RankProgress()> source) {
  const std::lock_guard lock(progress_mutex_);
  progress_source_ = std::move(source);
}

std::string TcpStore::activity() const {
  const std::lock_guard lock(mutex_);
  return activity_;
}

std::optional<std::string> TcpStore::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::optional<std::string> TcpStore::wait_for_failure(std::chrono::milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [&] { return failure_.has_value(); });
  return failure_;
}

void TcpStore::on_failure(std::function<void(const std::string&)> callback) {
  std::optional<std::string> happened;
  {
    const std::lock_guard lock(mutex_);
    happened = failure_;
    if (!happened) callback_ = std::move(callback);
  }
  if (happened) callback(*happened);
}

void TcpStore::leave(std::chrono::milliseconds timeout) {
  {
    const std::lock_guard lock(mutex_);
    if (leaving_ || failure_) return;
    leaving_ = true;
  }
  if (!send(FrameWriter(FrameType::kLeave).finish())) return;
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [&] { return left_ || lost_ || failure_; });
}

}  // namespace backends
