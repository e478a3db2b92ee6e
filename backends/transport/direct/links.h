// What the direct exchange needs of a transport: ordered messages between this rank and each of its
// peers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>

#include "backends/control_word.h"

namespace backends {

// Ways of one pair of ranks that are read independently of each other. Each has two slots.
enum class Lane { kShare, kResult };

// The first message of a call from one peer: its control word and some payload.
struct Head {
  ControlWord word;
  const char* payload;
};

// Not thread-safe but for abort(). The schedule sees to it that a slot is sent again only after the
// receiver has asked for the message in its other slot or for the next head, so a transport may
// keep one inbox a slot. Every wait has the context's deadline; failures throw PeerError that names
// the peer.
class Links {
 public:
  static constexpr std::size_t kHeadBytes = 128 << 10;  // most payload beside a word
  // Of one rank in a block: two blocks stay in the second-level cache. Messages on lanes may be
  // sizeof(double) longer.
  static constexpr std::size_t piece_bytes(int ranks) {
    return std::min<std::size_t>(256 << 10, (2048 << 10) / static_cast<std::size_t>(ranks));
  }

  virtual ~Links() = default;

  // Sends a call's head to one peer; all peers get one, of the same word. `payload`, at most
  // kHeadBytes, is copied.
  virtual void send_head(int peer, const ControlWord& word, const void* payload,
                         std::size_t bytes) = 0;
  // The peer's head of the call that send_head() was last used for, valid until the call after. Its
  // payload is as long as the word lets expect: to be read only when the word is the right one.
  virtual Head receive_head(int peer) = 0;

  // The memory must stay as it is until finish_sends(), or until the peer's answer proves that it
  // has arrived.
  virtual void send(int peer, Lane lane, unsigned slot, const void* data, std::size_t bytes) = 0;
  // Valid until the next message of this peer, lane and slot is received.
  virtual const char* receive(int peer, Lane lane, unsigned slot, std::size_t bytes) = 0;
  // Waits until nothing reads the memory given to send().
  virtual void finish_sends() = 0;

  // After a failure: returns once nothing reads the caller's memory; only destruction follows.
  // `gently`: what was sent should reach the peers, who have to learn of a mismatch too.
  virtual void let_go(bool gently) noexcept = 0;
  // After let_go(): the word of the head of call `sequence`, if it has arrived.
  virtual std::optional<ControlWord> arrived_word(int peer, std::uint32_t sequence) noexcept = 0;

  // Any thread: makes waits throw soon.
  virtual void abort(std::string_view reason) noexcept = 0;
};

}  // namespace backends
