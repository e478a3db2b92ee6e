// Implements sending and receiving over Gloo's pairs.
#include "backends/transport/gloo/gloo_links.h"

#include <chrono>
#include <cstring>
#include <limits>

#include "backends/backend_error.h"

namespace backends {
namespace {

// After a failure, the time to send this rank's words and to receive the peers' words. A peer that
// has left the call has sent its word before.
constexpr auto kWordTime = std::chrono::milliseconds(100);

}  // namespace

GlooLinks::GlooLinks(const BackendContext& context)
    : members_(context.members), link_patience_(context.link_patience), transport_(context) {
  const std::size_t head = sizeof(ControlWord) + kHeadBytes,
                    message = piece_bytes(transport_.size) + sizeof(double);
  const std::size_t inbox[kKinds] = {head, message, message};
  for (auto& of_peers : heads_) of_peers.assign(members_.size(), std::vector<char>(head));
  for (auto& slots : channels_) {
    for (auto& channels : slots) channels.resize(members_.size());
  }
  for (int peer = 0; peer < transport_.size; ++peer) {
    for (int number = 0; number < 2 * kKinds && peer != transport_.rank; ++number) {
      const int kind = number / 2;
      bind(channel(static_cast<Kind>(kind), static_cast<unsigned>(number % 2), peer),
           transport_.pair(peer), number, inbox[kind]);
    }
  }
}

void GlooLinks::bind(Channel& w, GlooPair& pair, int number, std::size_t bytes) {
  w.inbox.resize(bytes);
  w.receive = pair.bind_receiver(number, w.inbox.data(), bytes);
  // Bind to the whole address space: offsets are addresses, so that sending from any buffer needs
  // no new object.
  w.send = pair.bind_sender(number, nullptr, std::numeric_limits<std::size_t>::max());
}

void GlooLinks::send_head(int peer, unsigned slot, const ControlWord& word, const void* payload,
                          std::size_t bytes) {
  head_slot_ = slot;
  sequence_ = word.sequence;
  char* head = heads_[slot][static_cast<std::size_t>(peer)].data();
  std::memcpy(head, &word, sizeof word);
  if (bytes > 0) std::memcpy(head + sizeof word, payload, bytes);
  send_from(peer, channel(kHead, slot, peer), head, sizeof word + bytes);
}

// Also sends the rest of this rank's own head, which nothing would send between calls. The peer
// reads it, because it makes the same call. It has finished the call before, and for that received
// all that was sent to it: so the head of that one, whose memory the next call uses, is not copied.
Head GlooLinks::receive_head(int peer, unsigned slot) {
  Channel& w = channel(kHead, slot, peer);
  w.receive->waitRecv();
  finish(w);
  transport_.pair(peer).link().acknowledge(w.begin);
  const std::size_t bytes = w.receive->arrived();
  if (bytes < sizeof(ControlWord)) throw_wrong_length(peer, bytes, sizeof(ControlWord));
  Head head{{}, w.inbox.data() + sizeof(ControlWord), bytes - sizeof(ControlWord)};
  std::memcpy(&head.word, w.inbox.data(), sizeof head.word);
  return head;
}

void GlooLinks::send(int peer, Lane lane, unsigned slot, const void* data, std::size_t bytes) {
  send_from(peer, channel(lane, slot, peer), data, bytes);
}

// The peer has received the newest message of the same slot in the other lane: a result needs this
// rank's share of its block, and a share of block b + 2 is sent after the result of block b has
// come. Gathers use the lanes as four slots in rotation, of which it is true as well
// (direct_exchange.cc).
const char* GlooLinks::receive(int peer, Lane lane, unsigned slot, std::size_t bytes) {
  Channel& w = channel(lane, slot, peer);
  w.receive->waitRecv();
  const Lane other = lane == Lane::kShare ? Lane::kResult : Lane::kShare;
  transport_.pair(peer).link().acknowledge(channel(other, slot, peer).end);
  if (w.receive->arrived() != bytes) throw_wrong_length(peer, w.receive->arrived(), bytes);
  return w.inbox.data();
}

void GlooLinks::throw_wrong_length(int peer, std::size_t bytes, std::size_t expected) const {
  throw PeerError("rank " + std::to_string(members_[static_cast<std::size_t>(peer)]) + " sent " +
                  std::to_string(bytes) + " bytes, expected " + std::to_string(expected));
}

void GlooLinks::send_from(int peer, Channel& w, const void* data, std::size_t bytes) {
  const GlooPair& pair = transport_.pair(peer);
  w.begin = pair.queued_bytes();
  w.send->send(reinterpret_cast<std::size_t>(data), bytes, 0);
  w.end = pair.queued_bytes();
  ++w.unfinished;
}

void GlooLinks::finish(Channel& w) {
  for (; w.unfinished > 0; --w.unfinished) w.send->waitSend();
}

void GlooLinks::finish_sends() {
  for (const Kind kind : {kShare, kResult}) {
    for (auto& channels : channels_[kind]) {
      for (Channel& w : channels) finish(w);
    }
  }
  transport_.copy_unacknowledged();
}

void GlooLinks::shut_down(bool drain) noexcept {
  try {
    const base::Clock& clock = transport_.clock();
    const auto words = clock.deadline_in(kWordTime);
    transport_.exchange_until(
        clock.deadline_in(drain ? link_patience_ + kWordTime : kWordTime), [&] {
          if (clock.has_passed(words) && !transport_.has_down_pair()) return true;
          for (int peer = 0; peer < transport_.size; ++peer) {
            if (peer == transport_.rank || !transport_.pair(peer).trouble().empty()) continue;
            if (drain ? transport_.pair(peer).has_output()
                      : !arrived_word(peer, head_slot_, sequence_))
              return false;
          }
          return true;
        });
  } catch (const std::exception&) {
    // Out of memory: discard the unsent data.
  }
  transport_.copy_unacknowledged();
  transport_.drop_output();
  if (!drain) transport_.abort("a call failed");
}

std::optional<ControlWord> GlooLinks::arrived_word(int peer, unsigned slot,
                                                   std::uint32_t sequence) noexcept {
  const Channel& w = channel(kHead, slot, peer);
  ControlWord word;
  if (w.receive->arrived() < sizeof word) return std::nullopt;
  std::memcpy(&word, w.inbox.data(), sizeof word);
  if (word.sequence != sequence) return std::nullopt;
  return word;
}

}  // namespace backends
