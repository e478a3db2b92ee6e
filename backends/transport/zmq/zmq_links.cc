// Implements sending and receiving over ZeroMQ. zmq_set_up.cc connects the links.
#include "backends/transport/zmq/zmq_links.h"

#include <sys/stat.h>

#include <cstring>

#include "backends/backend_error.h"
#include "backends/transport/zmq/zmq_attempt.h"

namespace backends {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kZmqDrainTime = std::chrono::seconds(2);
constexpr auto kDrainSlice = std::chrono::milliseconds(10);
constexpr int kLingerMs = 500;
constexpr auto kFillerTime = std::chrono::seconds(2);
// If a rank dies, the ranks that wait for it also end. This rank names the first whose connection
// ended, unless data still arrives from the one that it waits for.
constexpr auto kZmqGraceTime = std::chrono::milliseconds(100);

}  // namespace

ZmqLinks::~ZmqLinks() { close_all(); }

ZmqLinks::Connection::Connection(int fd) : fd_(fd) {
  struct stat file {};
  if (fstat(fd, &file) == 0) inode_ = file.st_ino;
}

bool ZmqLinks::Connection::has_ended() const {
  struct stat file {};
  return fd_ >= 0 && (fstat(fd_, &file) != 0 || file.st_ino != inode_);
}

// `awaited`: the rank that this one has waited for since `since`; -1: all.
void ZmqLinks::check_connections(int awaited, Clock::time_point since) const {
  for (int peer = 0; peer < size_; ++peer) {
    if (!links_[static_cast<std::size_t>(peer)].connection.has_ended()) continue;
    if (awaited == -1 || peer == awaited || Clock::now() - since >= kZmqGraceTime)
      throw PeerError("the connection to rank " +
                      std::to_string(members_[static_cast<std::size_t>(peer)]) + " broke");
  }
}

void ZmqLinks::check_abort() const {
  if (!aborted_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  throw PeerError("aborted: " + reason_);
}

void ZmqLinks::throw_timeout(int peer) const {
  throw PeerError("timeout after " + std::to_string(timeout_.count()) + " ms, waiting for rank " +
                  std::to_string(members_[static_cast<std::size_t>(peer)]));
}

void ZmqLinks::send_message(int peer, zmq::message_t message, zmq::send_flags flags) {
  Link& l = link(peer);
  const auto start = Clock::now(), deadline = clock_.deadline_in(timeout_);
  // Waits for one slice; empty: not sent yet.
  while (!attempt_zmq([&] { return l.socket.send(message, flags); })) {
    check_abort();
    check_connections(peer, start);
    if (clock_.has_passed(deadline)) throw_timeout(peer);
  }
}

void ZmqLinks::send_head(int peer, const ControlWord& word, const void* payload,
                         std::size_t bytes) {
  head_slot_ = word.sequence & 1u;
  const Tag tag{link(peer).sent++, static_cast<std::uint16_t>(kHeadKind + head_slot_), 0};
  zmq::message_t message(sizeof tag + sizeof word + bytes);
  auto* to = message.data<char>();
  std::memcpy(to, &tag, sizeof tag);
  std::memcpy(to + sizeof tag, &word, sizeof word);
  if (bytes > 0) std::memcpy(to + sizeof tag + sizeof word, payload, bytes);
  send_message(peer, std::move(message), zmq::send_flags::none);
}

Head ZmqLinks::receive_head(int peer) {
  const zmq::message_t& message = fetch(peer, static_cast<std::uint16_t>(kHeadKind + head_slot_));
  // receive_one() has checked it.
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
  const Tag tag{link(peer).sent++, kind_of(lane, slot), 0};
  send_message(peer, zmq::message_t(&tag, sizeof tag), zmq::send_flags::sndmore);
  {
    const std::lock_guard lock(pending_.mutex);
    ++pending_.open;
  }
  // libzmq reads from the caller's memory. It takes a non-const pointer, but does not write.
  send_message(peer, zmq::message_t(const_cast<void*>(data), bytes, &on_sent, &pending_),
               zmq::send_flags::none);
}

const char* ZmqLinks::receive(int peer, Lane lane, unsigned slot, std::size_t bytes) {
  const zmq::message_t& message = fetch(peer, kind_of(lane, slot));
  if (message.size() != bytes)
    throw PeerError("rank " + std::to_string(members_[static_cast<std::size_t>(peer)]) + " sent " +
                    std::to_string(message.size()) + " bytes, expected " + std::to_string(bytes));
  return message.data<char>();
}

const zmq::message_t& ZmqLinks::fetch(int peer, std::uint16_t kind) {
  Link& l = link(peer);
  while (!l.fresh[kind]) receive_one(peer);
  l.fresh[kind] = false;
  return l.slots[kind];
}

// Receives the next message of the peer, of any kind, into its slot.
void ZmqLinks::receive_one(int peer) {
  Link& l = link(peer);
  zmq::message_t message = wait_for_message(peer, Filler::kAfterAWhile);
  Tag tag{};
  if (message.size() >= sizeof tag) std::memcpy(&tag, message.data(), sizeof tag);
  if (tag.number == l.received && tag.kind == kFiller && message.size() == filler_bytes()) {
    ++l.received;
    return;
  }
  const bool is_head = tag.kind < kHeadKind + 2;
  if (tag.number != l.received++ || tag.kind >= kKinds || l.fresh[tag.kind] ||
      message.more() == is_head ||
      message.size() < sizeof tag + (is_head ? sizeof(ControlWord) : 0))
    throw PeerError("messages of rank " + std::to_string(members_[static_cast<std::size_t>(peer)]) +
                    " were lost: expected number " + std::to_string(l.received - 1) + ", got " +
                    std::to_string(tag.number));
  if (!is_head) message = wait_for_message(peer);
  l.slots[tag.kind] = std::move(message);
  l.fresh[tag.kind] = true;
}

// Sends as much as the longest rest of a message. If a byte of a message's length is changed in
// transit, libzmq waits for a rest that does not come, and its sender for a reply: with the filler,
// the receiver gets a message that it can reject.
void ZmqLinks::send_filler(int peer) {
  zmq::message_t message(filler_bytes());
  const Tag tag{link(peer).sent++, kFiller, 0};
  std::memset(message.data(), 0, message.size());
  std::memcpy(message.data(), &tag, sizeof tag);
  send_message(peer, std::move(message), zmq::send_flags::none);
}

zmq::message_t ZmqLinks::wait_for_message(int peer, Filler filler) {
  zmq::message_t message;
  if (std::deque<zmq::message_t>& early = link(peer).early; !early.empty()) {
    message = std::move(early.front());
    early.pop_front();
    return message;
  }
  const auto received = [&](zmq::recv_flags flags) {
    return attempt_zmq([&] { return link(peer).socket.recv(message, flags); });
  };
  if (received(zmq::recv_flags::dontwait)) return message;
  const auto start = Clock::now(), deadline = clock_.deadline_in(timeout_);
  while (!received(zmq::recv_flags::none)) {  // waits for one slice; empty: nothing came
    check_abort();
    if (link(peer).connection.has_ended() && received(zmq::recv_flags::dontwait)) break;
    check_connections(peer, start);
    if (clock_.has_passed(deadline)) throw_timeout(peer);
    if (filler == Filler::kAfterAWhile && Clock::now() - start >= kFillerTime) {
      filler = Filler::kNone;
      send_filler(peer);
    }
  }
  return message;
}

void ZmqLinks::finish_sends() {
  check_abort();  // for calls that never wait; the words have been compared by now
  const auto start = Clock::now(), deadline = clock_.deadline_in(timeout_);
  std::unique_lock lock(pending_.mutex);
  while (!pending_.changed.wait_for(lock, std::chrono::milliseconds(50),
                                    [&] { return pending_.open == 0; })) {
    check_abort();
    check_connections(-1, start);
    if (clock_.has_passed(deadline))
      throw PeerError("timeout after " + std::to_string(timeout_.count()) +
                      " ms, sending to the other ranks");
  }
}

void ZmqLinks::shut_down(bool drain) noexcept {
  if (drain) {
    // An abort means that the others have been told, or are gone, so nothing more is sent for them.
    const auto start = Clock::now();
    std::unique_lock lock(pending_.mutex);
    while (!aborted_ && Clock::now() - start < kZmqDrainTime) {
      if (pending_.changed.wait_for(lock, kDrainSlice, [&] { return pending_.open == 0; })) return;
    }
  }
  // Read the messages that have arrived; closing the context then waits until libzmq no longer
  // reads our memory.
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_ || !link(peer).socket) continue;
    try {
      while (!link(peer).early.empty()) receive_one(peer);
      for (;;) {
        const auto events =
            attempt_zmq([&] { return std::optional(link(peer).socket.get(zmq::sockopt::events)); });
        if (events && (*events & ZMQ_POLLIN) == 0) break;
        if (events) receive_one(peer);
      }
    } catch (const std::exception&) {
      // The rest cannot be read.
    }
  }
  close_all();
}

std::optional<ControlWord> ZmqLinks::arrived_word(int peer, std::uint32_t sequence) noexcept {
  const zmq::message_t& message = link(peer).slots[kHeadKind + (sequence & 1u)];
  if (message.size() < sizeof(Tag) + sizeof(ControlWord)) return std::nullopt;
  ControlWord word;
  std::memcpy(&word, message.data<char>() + sizeof(Tag), sizeof word);
  if (word.sequence != sequence) return std::nullopt;
  return word;
}

void ZmqLinks::close_all() noexcept {
  const int linger = aborted_ || pending_.any() ? 0 : kLingerMs;
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
  try {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_.assign(reason);
  } catch (const std::exception&) {
    // Out of memory: aborts without a reason.
  }
  aborted_.store(true, std::memory_order_release);
}

}  // namespace backends
