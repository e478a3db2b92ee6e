// Implements sending, receiving and waiting.
#include "backends/transport/socket/link_exchange.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "backends/backend_error.h"
#include "io/base/files/transient_error.h"
#include "io/base/time/deadline.h"

namespace backends {
namespace {

constexpr auto kFailureTime = std::chrono::milliseconds(100);
// Bytes per system call, so that all connections are served alternately.
constexpr std::size_t kMaxAtOnce = 1 << 20;
constexpr int kMaxParts = 4;     // per system call
constexpr int kDownPollMs = 20;  // between looks at a connection that is being restored

}  // namespace

void LinkExchange::Queue::advance(std::size_t bytes) {
  done += bytes;
  while (!empty() && done >= front().bytes) {
    done -= front().bytes;
    ++first;
  }
}

LinkExchange::LinkExchange(std::shared_ptr<SocketMesh> mesh, const BackendContext& context)
    : mesh_(std::move(mesh)),
      rank_(context.rank),
      members_(context.members),
      timeout_(context.timeout),
      clock_(context.clock),
      streams_(static_cast<std::size_t>(mesh_->streams())),
      links_(members_.size() * streams_),
      inboxes_(members_.size()),
      polled_(links_.size() + 1),
      wait_(*mesh_, rank_, static_cast<int>(members_.size())) {
  for (int peer = 0; peer < static_cast<int>(members_.size()); ++peer) {
    if (peer == rank_) continue;
    inboxes_[static_cast<std::size_t>(peer)] =
        std::make_unique<char[]>(sizeof(ControlWord) + kInboxBytes);
    for (std::size_t stream = 0; stream < streams_; ++stream) {
      Link& l = links_[index(peer, stream)];
      l.peer = peer;
      l.fd = mesh_->fd(peer, static_cast<int>(stream));
      l.stream = &mesh_->link(peer, static_cast<int>(stream));
    }
  }
}

void LinkExchange::begin(const ControlWord& word) {
  word_ = word;
  deadline_ = clock_.deadline_in(timeout_);
  for (Link& l : links_) {
    l.out.opened = l.in.opened = false;
    l.of_earlier_calls = l.queued;
  }
}

void LinkExchange::exchange_words() {
  for (std::size_t at = 0; at < links_.size(); at += streams_) {
    if (links_[at].fd < 0) continue;
    open_out(links_[at]);
    open_in(links_[at]);
  }
}

void LinkExchange::push_out(Link& l, const Part& part) {
  l.out.push(part);
  l.queued += part.bytes;
}

void LinkExchange::open_out(Link& l) {
  if (!l.out.opened) push_out(l, {reinterpret_cast<char*>(&word_), sizeof word_, true});
  l.out.opened = true;
}

void LinkExchange::open_in(Link& l) {
  if (!l.in.opened) l.in.push({reinterpret_cast<char*>(&l.word), sizeof l.word, true});
  l.in.opened = true;
}

std::uint64_t LinkExchange::send(int peer, std::size_t piece, const char* data, std::size_t bytes) {
  Link& l = links_[index(peer, piece)];
  if (bytes == 0) return 0;
  if (l.out.room() < 2) wait_.run(*this, [&] { return l.out.room() >= 2; });
  open_out(l);
  push_out(l, {const_cast<char*>(data), bytes, false});  // it is only read
  return l.queued;
}

LinkExchange::Receipt LinkExchange::receive(int peer, std::size_t piece, char* data,
                                            std::size_t bytes, std::uint64_t answers) {
  const std::size_t at = index(peer, piece);
  Link& l = links_[at];
  if (bytes == 0) return {at, l.in.first};
  if (l.in.room() < 2) wait_.run(*this, [&] { return l.in.room() >= 2; });
  open_in(l);
  l.in.push({data, bytes, false, answers});
  return {at, l.in.end};
}

void LinkExchange::exchange_small(int peer, const char* data, std::size_t bytes) {
  Link& l = links_[index(peer, 0)];
  l.in.push({inboxes_[static_cast<std::size_t>(peer)].get(), sizeof(ControlWord) + bytes, true});
  l.in.opened = true;
  open_out(l);
  if (bytes > 0) push_out(l, {const_cast<char*>(data), bytes, false});
}

void LinkExchange::wait_for(Receipt receipt) {
  const Queue& in = links_[receipt.link].in;
  wait_.run(*this, [&] { return static_cast<std::int32_t>(in.first - receipt.end) >= 0; });
}

void LinkExchange::wait_all() {
  wait_.run(*this, [&] {
    return std::ranges::all_of(links_, [](const Link& l) { return l.in.empty() && l.out.empty(); });
  });
  if (!mesh_->resumes()) return;
  for (Link& l : links_) {
    if (l.fd >= 0) l.stream->copy_unacknowledged();
  }
}

void LinkExchange::on_abort() {
  fail("aborted: " + mesh_->abort_reason() + "; this rank was waiting for " + awaited_ranks());
}

void LinkExchange::on_timeout() {
  fail("timeout after " + std::to_string(timeout_.count()) + " ms, waiting for " + awaited_ranks());
}

// Returns true if any bytes were sent or received.
bool LinkExchange::pump() {
  bool moved = false;
  for (Link& l : links_) {
    if (!l.out.empty() || (l.fd >= 0 && l.stream->is_replaying())) moved |= pump_out(l);
  }
  for (Link& l : links_) {
    if (!l.in.empty()) moved |= pump_in(l);
  }
  return moved;
}

bool LinkExchange::pump_out(Link& l) {
  std::array<iovec, kMaxParts> parts;
  std::size_t count = 0, bytes = 0, skip = l.out.done;
  for (std::uint32_t p = l.out.first; p != l.out.end && count < kMaxParts && bytes < kMaxAtOnce;
       ++p, skip = 0) {
    const Part& part = l.out.parts[p % kMaxQueued];
    const std::size_t n = std::min(part.bytes - skip, kMaxAtOnce - bytes);
    parts[count++] = {part.data + skip, n};
    bytes += n;
  }
  const ssize_t n = l.stream->send({parts.data(), count});
  if (n < 0) {
    if (base::is_transient(errno)) return false;
    fail_link(l, errno);
  }
  l.out.advance(static_cast<std::size_t>(n));
  return n > 0;
}

bool LinkExchange::pump_in(Link& l) {
  bool moved = false;
  while (!l.in.empty()) {
    const Part part = l.in.front();
    const std::size_t before = l.in.done;
    iovec rest{part.data + before, std::min(part.bytes - before, kMaxAtOnce)};
    const ssize_t n = l.stream->receive({&rest, 1});
    if (n < 0 && base::is_transient(errno)) return moved;
    if (n < 0) fail_link(l, errno);
    if (n == 0) fail(name_of(l) + " closed the connection");
    moved = true;
    if (part.answers > 0) l.stream->acknowledge(part.answers);
    const std::size_t after = before + static_cast<std::size_t>(n);
    if (part.starts_with_word && before < sizeof(ControlWord) && after >= sizeof(ControlWord)) {
      check_word(l, part);
      // The peer has finished the calls before, and for that received all that it was sent.
      l.stream->acknowledge(l.of_earlier_calls);
    }
    l.in.advance(static_cast<std::size_t>(n));
    if (part.bytes > sizeof(ControlWord))
      return true;  // after a word alone, try the next part at once
  }
  return moved;
}

void LinkExchange::check_word(const Link& l, const Part& part) {
  ControlWord theirs;
  std::memcpy(&theirs, part.data, sizeof theirs);
  if (!(theirs == word_)) {  // this call may send nothing to that peer
    for (Link& other : links_) {
      if (other.fd >= 0 && !other.out.opened) open_out(other);
    }
    send_waiting_words();
  }
  expect_equal(word_, members_[static_cast<std::size_t>(rank_)], theirs,
               members_[static_cast<std::size_t>(l.peer)]);
}

// Idle connections are also watched for errors: the ranks that wait for a dead peer will end, and
// this rank must not take that for the cause. But the peer may also have finished this call and
// failed later, so data that still arrives takes precedence.
void LinkExchange::sleep() {
  int time = clock_.poll_ms(deadline_);
  for (std::size_t i = 0; i < links_.size(); ++i) {
    const Link& l = links_[i];
    const bool down = l.fd >= 0 && l.stream->is_down();
    if (down) time = std::min(time, kDownPollMs);
    const bool sends = !l.out.empty() || (l.fd >= 0 && l.stream->is_replaying());
    polled_[i] = {down ? -1 : l.fd,
                  static_cast<short>((l.in.empty() ? 0 : POLLIN) | (sends ? POLLOUT : 0)), 0};
  }
  polled_.back() = {mesh_->wake_fd(), POLLIN, 0};
  const int ready = poll(polled_.data(), polled_.size(), time);
  if (polled_.back().revents != 0) mesh_->take_wake();
  if (ready <= 0 && time != kDownPollMs) return;
  const Link* broken = find_broken();
  if (broken == nullptr) return;
  if (poll(polled_.data(), polled_.size(), static_cast<int>(kFailureTime.count())) > 0) return;
  if (broken->stream->is_given_up()) fail_link(*broken, EPIPE);
  fail("the connection to " + name_of(*broken) + " broke");
}

// Returns an idle connection that has broken for good, and does not poll it again.
const LinkExchange::Link* LinkExchange::find_broken() {
  const Link* broken = nullptr;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    const Link& l = links_[i];
    const bool ended = polled_[i].events == 0 && (polled_[i].revents & (POLLERR | POLLHUP)) != 0;
    if (ended ? l.stream->break_off(ECONNRESET) : l.fd < 0 || !l.stream->is_given_up()) continue;
    broken = &l;
    polled_[i].fd = -1;
  }
  return broken;
}

// Ranks that detect a mismatch end first. So that the others learn of the mismatch and not only of
// closed connections, a failing rank sends its own word and waits for missing words for
// kFailureTime.
void LinkExchange::exchange_words_on_failure() {
  const auto until = clock_.deadline_in(is_late() ? std::chrono::milliseconds(0) : kFailureTime);
  send_waiting_words();
  for (;;) {
    for (std::size_t i = 0; i < links_.size(); ++i)
      polled_[i] = {receive_word_on_failure(links_[i]) ? links_[i].fd : -1, POLLIN, 0};
    polled_.back().fd = -1;
    if (std::ranges::none_of(polled_, [](const pollfd& p) { return p.fd >= 0; })) return;
    if (poll(polled_.data(), polled_.size(), clock_.poll_ms(until)) <= 0 &&
        clock_.has_passed(until))
      return;
  }
}

void LinkExchange::send_waiting_words() {
  for (Link& l : links_) {
    iovec word{&word_, sizeof word_};
    if (!l.out.empty() && l.out.front().starts_with_word && l.out.done == 0)
      (void)l.stream->send({&word, 1});
  }
}

// Returns true if this link's word may still arrive.
bool LinkExchange::receive_word_on_failure(Link& l) {
  if (l.in.empty() || !l.in.front().starts_with_word || l.in.done >= sizeof(ControlWord))
    return false;
  if (l.stream->is_down()) return false;  // a break is final for a call that fails
  const Part part = l.in.front();
  iovec rest{part.data + l.in.done, sizeof(ControlWord) - l.in.done};
  const ssize_t n = l.stream->receive({&rest, 1});
  if (n > 0) l.in.done += static_cast<std::size_t>(n);
  if (l.in.done == sizeof(ControlWord)) {
    check_word(l, part);
    return false;
  }
  return n > 0 || (n < 0 && base::is_transient(errno) && !l.stream->is_down());
}

void LinkExchange::fail(const std::string& text) {
  exchange_words_on_failure();
  throw PeerError(text);
}

void LinkExchange::fail_link(const Link& l, int error) {
  fail("the connection to " + name_of(l) + " " + l.stream->error_text(error));
}

std::string LinkExchange::awaited_ranks() const {
  std::string names;
  int last = -1;
  for (const Link& l : links_) {
    if ((l.in.empty() && l.out.empty()) || l.peer == last) continue;
    last = l.peer;
    names += (names.empty() ? "rank " : ", ") +
             std::to_string(members_[static_cast<std::size_t>(l.peer)]);
  }
  return names;
}

}  // namespace backends
