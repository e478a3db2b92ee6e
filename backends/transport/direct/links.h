// The interface of a transport for the direct exchange: ordered messages between this rank and each
// peer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "backends/control_word.h"

namespace backends {

// Independent message channels between two ranks. Each has two slots.
enum class Lane { kShare, kResult };

// The first message of a call from one peer: its control word and some payload.
struct Head {
  ControlWord word;
  const char* payload;
  std::size_t bytes;  // size of the payload
};

// Not thread-safe except abort(). The schedule reuses a slot only after the receiver has requested
// the message in the other slot or the next head, so a transport needs one inbox per slot. Every
// wait has the context's deadline; a failure throws a PeerError that names the peer.
class Links {
 public:
  static constexpr std::size_t kHeadBytes = 128 << 10;  // maximum payload beside a word
  // Returns the maximum payload of a reduction that goes whole to every peer, in heads: one hop
  // instead of two. The bound is on the total bytes that a rank sends: with three or more ranks,
  // two hops send less.
  static constexpr std::size_t one_hop_bytes(int ranks) {
    const std::size_t share = (256 << 10) / static_cast<std::size_t>(std::max(ranks - 1, 1));
    return std::clamp<std::size_t>(share, 16 << 10, kHeadBytes);
  }
  // Returns the bytes of one rank in a block, such that two blocks fit the second-level cache.
  // Messages on lanes may be sizeof(double) longer.
  static constexpr std::size_t piece_bytes(int ranks) {
    return std::min<std::size_t>(256 << 10, (2048 << 10) / static_cast<std::size_t>(ranks));
  }

  virtual ~Links() = default;

  // Sends a call's head to one peer; all peers get one, with the same word. `payload`, at most
  // kHeadBytes, is copied. Consecutive calls alternate between the slots, regardless of their
  // numbers.
  virtual void send_head(int peer, unsigned slot, const ControlWord& word, const void* payload,
                         std::size_t bytes) = 0;
  // Returns the peer's head of the call that send_head() was last used for, in the same slot, valid
  // until the call after. The meaning of the payload depends on the word: read it only if the word
  // is as expected.
  virtual Head receive_head(int peer, unsigned slot) = 0;

  // Sends `bytes` at `data`, which must not change until finish_sends(), or until a reply of the
  // peer shows that the message has arrived.
  virtual void send(int peer, Lane lane, unsigned slot, const void* data, std::size_t bytes) = 0;
  // Returns a message that is valid until the next one of this peer, lane and slot is received.
  virtual const char* receive(int peer, Lane lane, unsigned slot, std::size_t bytes) = 0;
  // Waits until the memory passed to send() is no longer read.
  virtual void finish_sends() = 0;

  // Called after a failure: returns when the caller's memory is no longer read; then only
  // destruction is allowed. `drain`: deliver the sent messages first, because the peers must also
  // learn of a mismatch.
  virtual void shut_down(bool drain) noexcept = 0;
  // After shut_down(): returns the word of the newest call if its head has arrived, by its slot and
  // number.
  virtual std::optional<ControlWord> arrived_word(int peer, unsigned slot,
                                                  std::uint32_t sequence) noexcept = 0;

  // Same as Communicator::current_wait(). Any thread.
  virtual CallWait current_wait() const { return {}; }
  // Makes waits throw soon. Any thread.
  virtual void abort(std::string_view reason) noexcept = 0;
};

}  // namespace backends
