// Implements sending and receiving over ZeroMQ. zmq_set_up.cc connects the links.
#include "backends/transport/zmq/zmq_links.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstring>

#include "backends/backend_error.h"
#include "backends/store/tcp_socket.h"
#include "backends/transport/zmq/zmq_attempt.h"

namespace backends {
namespace {

using namespace std::chrono_literals;
constexpr auto kZmqDrainTime = std::chrono::seconds(2);
constexpr auto kDrainSlice = std::chrono::milliseconds(10);
constexpr auto kDownSlice = std::chrono::milliseconds(2);
constexpr int kLingerMs = 500;
constexpr auto kFillerTime = std::chrono::seconds(2);
// If a rank dies, the ranks that wait for it also end. This rank names the first whose connection
// ended, unless data still arrives from the one that it waits for.
constexpr auto kZmqGraceTime = std::chrono::milliseconds(100);

}  // namespace

ZmqLinks::Connection::Connection(int fd) : fd_(fd) {
  struct stat file {};
  if (fstat(fd, &file) == 0) inode_ = file.st_ino;
}

bool ZmqLinks::Connection::has_ended() const {
  struct stat file {};
  return fd_ >= 0 && (fstat(fd_, &file) != 0 || file.st_ino != inode_);
}

bool ZmqLinks::has_failed(const Link& l) const {
  return resumes() ? l.state == State::kGivenUp : l.connection.has_ended();
}

// `awaited`: the rank that this one has waited for since `since`; -1: all.
void ZmqLinks::check_connections(int awaited, base::Deadline since) const {
  for (int peer = 0; peer < size_; ++peer) {
    const Link& l = links_[static_cast<std::size_t>(peer)];
    if (!has_failed(l)) continue;
    if (awaited == -1 || peer == awaited || clock_.now() - since >= kZmqGraceTime)
      throw PeerError("the connection to rank " +
                      std::to_string(members_[static_cast<std::size_t>(peer)]) + " broke" +
                      l.failure);
  }
}

ZmqLinks::Connection ZmqLinks::Connection::ended() {
  Connection none;
  none.fd_ = 0;  // whose inode is not 0
  return none;
}

// A copy of the descriptor refers to one file, even if libzmq closes its own meanwhile.
void ZmqLinks::Connection::end() const {
  const base::Descriptor copy(fcntl(fd_, F_DUPFD_CLOEXEC, 0));
  struct stat file {};
  if (copy && fstat(copy.fd(), &file) == 0 && file.st_ino == inode_) shutdown(copy.fd(), SHUT_RDWR);
}

void ZmqLinks::throw_timeout(int peer, std::chrono::milliseconds time) const {
  throw PeerError("timeout after " + std::to_string(time.count()) + " ms, waiting for rank " +
                  std::to_string(members_[static_cast<std::size_t>(peer)]));
}

// Returns false if the link is down: what was kept is then sent over the next connection.
bool ZmqLinks::send_part(int peer, zmq::message_t& part, zmq::send_flags flags) {
  Link& l = link(peer);
  if (l.state != State::kUp) return false;
  const auto start = clock_.now(), deadline = clock_.deadline_in(timeout_);
  // Waits for one slice; empty: not sent yet.
  while (!attempt_zmq([&] { return l.socket.send(part, flags); })) {
    abort_.throw_if_aborted();
    if (resumes() && l.connection.has_ended()) {
      mark_down(l);
      return false;
    }
    check_connections(peer, start);
    if (clock_.has_passed(deadline)) throw_timeout(peer, timeout_);
  }
  return true;
}

void ZmqLinks::send_head(int peer, unsigned slot, const ControlWord& word, const void* payload,
                         std::size_t bytes) {
  Link& l = link(peer);
  const std::lock_guard lock(l.mutex);
  const Tag tag{l.sent++, static_cast<std::uint16_t>(kHeadKind + slot), 0};
  zmq::message_t& head = l.heads[slot];
  head.rebuild(sizeof tag + sizeof word + bytes);
  auto* to = head.data<char>();
  std::memcpy(to, &tag, sizeof tag);
  std::memcpy(to + sizeof tag, &word, sizeof word);
  if (bytes > 0) std::memcpy(to + sizeof tag + sizeof word, payload, bytes);
  keep(l, tag, to + sizeof tag, sizeof word + bytes);
  zmq::message_t message;
  message.copy(head);
  (void)send_part(peer, message, zmq::send_flags::none);
}

// The peer has finished the call before, and for that received all that it needed.
Head ZmqLinks::receive_head(int peer, unsigned slot) {
  const auto kind = static_cast<std::uint16_t>(kHeadKind + slot);
  const zmq::message_t& message = fetch(peer, kind);
  acknowledge(link(peer), link(peer).places[kind].needed);
  // store() has checked it.
  constexpr std::size_t kBefore = sizeof(Tag) + sizeof(ControlWord);
  Head head{{}, message.data<char>() + kBefore, message.size() - kBefore};
  std::memcpy(&head.word, message.data<char>() + sizeof(Tag), sizeof head.word);
  return head;
}

void ZmqLinks::on_sent(void*, void* pending) {
  auto& open = *static_cast<PendingSends*>(pending);
  const std::lock_guard lock(open.mutex);
  if (--open.open == 0) open.changed.notify_all();
}

void ZmqLinks::send(int peer, Lane lane, unsigned slot, const void* data, std::size_t bytes) {
  Link& l = link(peer);
  const std::lock_guard lock(l.mutex);
  const Tag tag{l.sent++, kind_of(lane, slot), 0};
  keep(l, tag, data, bytes);
  zmq::message_t first(&tag, sizeof tag);
  if (!send_part(peer, first, zmq::send_flags::sndmore)) return;
  {
    const std::lock_guard pending(pending_.mutex);
    ++pending_.open;
  }
  // libzmq reads from the caller's memory. It takes a non-const pointer, but does not write.
  zmq::message_t payload(const_cast<void*>(data), bytes, &on_sent, &pending_);
  (void)send_part(peer, payload, zmq::send_flags::none);
}

// The peer has received the newest message of the same slot in the other lane (gloo_links.cc).
const char* ZmqLinks::receive(int peer, Lane lane, unsigned slot, std::size_t bytes) {
  const zmq::message_t& message = fetch(peer, kind_of(lane, slot));
  const Lane other = lane == Lane::kShare ? Lane::kResult : Lane::kShare;
  acknowledge(link(peer), link(peer).places[kind_of(other, slot)].end);
  if (message.size() != bytes)
    throw PeerError("rank " + std::to_string(members_[static_cast<std::size_t>(peer)]) + " sent " +
                    std::to_string(message.size()) + " bytes, expected " + std::to_string(bytes));
  return message.data<char>();
}

// ---- What is sent again.

void ZmqLinks::keep(Link& l, const Tag& tag, const void* payload, std::size_t bytes) {
  if (!l.replay) return;
  const KeptTag kept{tag, bytes};
  l.replay->add(reinterpret_cast<const char*>(&kept), sizeof kept);
  l.replay->add(static_cast<const char*>(payload), bytes);
  if (tag.kind == kFiller) return;
  l.places[tag.kind] = {l.needed, l.replay->end()};
  l.needed = l.replay->end();
}

void ZmqLinks::acknowledge(Link& l, std::uint64_t position) {
  if (!l.replay) return;
  const std::lock_guard lock(l.mutex);
  l.replay->acknowledge(position);
}

void ZmqLinks::copy_unacknowledged() {
  for (Link& l : links_) {
    if (!l.replay) continue;
    const std::lock_guard lock(l.mutex);
    l.replay->copy_unacknowledged();
  }
}

void ZmqLinks::mark_down(Link& l) {
  l.early.clear();  // not counted as received
  l.state = State::kDown;
  repair_wake_.notify_all();
}

bool ZmqLinks::any_down() const {
  return std::ranges::any_of(links_, [](const Link& l) { return l.state == State::kDown; });
}

// ---- Receiving.

const zmq::message_t& ZmqLinks::fetch(int peer, std::uint16_t kind) {
  Link& l = link(peer);
  while (!l.unconsumed[kind]) receive_one(peer);
  l.unconsumed[kind] = false;
  return l.slots[kind];
}

// Receives the next message of the peer, of any kind, into its slot.
void ZmqLinks::receive_one(int peer) {
  if (receive_next(peer, zmq::recv_flags::dontwait)) return;
  const auto start = clock_.now(), deadline = clock_.deadline_in(timeout_);
  for (bool filled = false; !receive_next(peer, zmq::recv_flags::none);) {
    abort_.throw_if_aborted();
    check_connections(peer, start);
    if (clock_.has_passed(deadline)) throw_timeout(peer, timeout_);
    if (!filled && clock_.now() - start >= kFillerTime) {
      filled = true;
      send_filler(peer);
    }
  }
}

bool ZmqLinks::take_part(Link& l, zmq::message_t& part, zmq::recv_flags flags) {
  if (l.early.empty()) return attempt_zmq([&] { return l.socket.recv(part, flags); }).has_value();
  part = std::move(l.early.front());
  l.early.pop_front();
  return true;
}

// Unless `flags` say otherwise, waits for one slice. A message is counted and stored before another
// thread can end its connection.
bool ZmqLinks::receive_next(int peer, zmq::recv_flags flags) {
  Link& l = link(peer);
  if (l.state != State::kUp) {
    if (flags == zmq::recv_flags::none) std::this_thread::sleep_for(kDownSlice);
    return false;
  }
  const std::lock_guard lock(l.mutex);
  zmq::message_t first, payload;
  bool taken = l.state == State::kUp && take_part(l, first, flags);
  const bool ended = !taken && l.state == State::kUp && l.connection.has_ended();
  if (ended) taken = take_part(l, first, zmq::recv_flags::dontwait);
  if (ended && !taken && resumes()) mark_down(l);
  if (!taken) return false;
  // Its descriptor belonged to another connection: this one has ended, and the peer starts over.
  if (resumes() && peer > rank_ && is_hello(peer, first)) {
    l.connection.end();
    mark_down(l);
    return false;
  }
  // libzmq delivers all parts or none.
  while (first.more() && !take_part(l, payload, zmq::recv_flags::none)) abort_.throw_if_aborted();
  store(peer, std::move(first), std::move(payload));
  return true;
}

void ZmqLinks::store(int peer, zmq::message_t first, zmq::message_t payload) {
  Link& l = link(peer);
  Tag tag{};
  if (first.size() >= sizeof tag) std::memcpy(&tag, first.data(), sizeof tag);
  if (tag.number == l.received && tag.kind == kFiller && first.size() == filler_bytes()) {
    ++l.received;
    l.received_bytes += sizeof(KeptTag);
    return;
  }
  const bool is_head = tag.kind < kHeadKind + 2;
  if (tag.number != l.received++ || tag.kind >= kKinds || l.unconsumed[tag.kind] ||
      first.more() == is_head || first.size() < sizeof tag + (is_head ? sizeof(ControlWord) : 0))
    throw PeerError("messages of rank " + std::to_string(members_[static_cast<std::size_t>(peer)]) +
                    " were lost: expected number " + std::to_string(l.received - 1) + ", got " +
                    std::to_string(tag.number));
  zmq::message_t& slot = l.slots[tag.kind] = is_head ? std::move(first) : std::move(payload);
  l.received_bytes += sizeof(KeptTag) + slot.size() - (is_head ? sizeof tag : 0);
  l.unconsumed[tag.kind] = true;
}

// Sends as much as the longest rest of a message. If a byte of a message's length is changed in
// transit, libzmq waits for a rest that does not come, and its sender for a reply: with the filler,
// the receiver gets a message that it can reject.
void ZmqLinks::send_filler(int peer) {
  Link& l = link(peer);
  const std::lock_guard lock(l.mutex);
  zmq::message_t message(filler_bytes());
  const Tag tag{l.sent++, kFiller, 0};
  keep(l, tag, nullptr, 0);
  std::memset(message.data(), 0, message.size());
  std::memcpy(message.data(), &tag, sizeof tag);
  (void)send_part(peer, message, zmq::send_flags::none);
}

void ZmqLinks::finish_sends() {
  abort_.throw_if_aborted();  // for calls that never wait; the words have been compared by now
  const auto start = clock_.now(), deadline = clock_.deadline_in(timeout_);
  std::unique_lock lock(pending_.mutex);
  while (!pending_.changed.wait_for(lock, std::chrono::milliseconds(50),
                                    [&] { return pending_.open == 0; })) {
    abort_.throw_if_aborted();
    check_connections(-1, start);
    if (clock_.has_passed(deadline))
      throw PeerError("timeout after " + std::to_string(timeout_.count()) +
                      " ms, sending to the other ranks");
  }
  lock.unlock();
  copy_unacknowledged();
}

void ZmqLinks::shut_down(bool drain) noexcept {
  if (drain) {
    // An abort means that the others have been told, or are gone, so nothing more is sent for them.
    const auto start = clock_.now();
    const auto is_late = [&] {
      return clock_.now() - start >= kZmqDrainTime + (any_down() ? link_patience_ : 0ms);
    };
    std::unique_lock lock(pending_.mutex);
    while (!abort_.is_aborted() && !is_late()) {
      const bool sent =
          pending_.changed.wait_for(lock, kDrainSlice, [&] { return pending_.open == 0; });
      if (sent && !any_down()) {
        lock.unlock();
        return copy_unacknowledged();
      }
    }
  }
  stop_repairs();
  // Read the messages that have arrived; closing the context then waits until libzmq no longer
  // reads our memory.
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_ || !link(peer).socket) continue;
    try {
      while (receive_next(peer, zmq::recv_flags::dontwait)) {
      }
    } catch (const std::exception&) {
      // The rest cannot be read.
    }
  }
  close_all();
}

std::optional<ControlWord> ZmqLinks::arrived_word(int peer, unsigned slot,
                                                  std::uint32_t sequence) noexcept {
  const zmq::message_t& message = link(peer).slots[kHeadKind + slot];
  if (message.size() < sizeof(Tag) + sizeof(ControlWord)) return std::nullopt;
  ControlWord word;
  std::memcpy(&word, message.data<char>() + sizeof(Tag), sizeof word);
  if (word.sequence != sequence) return std::nullopt;
  return word;
}

void ZmqLinks::close_all() noexcept {
  stop_repairs();
  const int linger = abort_.is_aborted() || pending_.any() ? 0 : kLingerMs;
  for (Link& l : links_) {
    try {
      if (l.socket) l.socket.set(zmq::sockopt::linger, linger);
    } catch (const zmq::error_t&) {
      // The context has ended.
    }
    l.socket.close();
  }
  context_.shutdown();
  zap_handler_.reset();
  context_.close();
}

void ZmqLinks::abort(std::string_view reason) noexcept {
  abort_.abort(reason);
  repair_wake_.notify_all();
}

}  // namespace backends
