// Sends messages over Gloo's pairs with buffers bound to slots; Gloo's algorithms are not used.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/transport/direct/links.h"
#include "backends/transport/gloo/gloo_transport.h"

namespace backends {

class GlooLinks final : public Links {
 public:
  // Collective: connects. Throws as GlooTransport does.
  explicit GlooLinks(const BackendContext& context);

  void send_head(int peer, unsigned slot, const ControlWord& word, const void* payload,
                 std::size_t bytes) override;
  Head receive_head(int peer, unsigned slot) override;
  void send(int peer, Lane lane, unsigned slot, const void* data, std::size_t bytes) override;
  const char* receive(int peer, Lane lane, unsigned slot, std::size_t bytes) override;
  void finish_sends() override;
  void shut_down(bool drain) noexcept override;
  std::optional<ControlWord> arrived_word(int peer, unsigned slot,
                                          std::uint32_t sequence) noexcept override;
  CallWait current_wait() const override { return transport_.current_wait(); }
  void abort(std::string_view reason) noexcept override { transport_.abort(reason); }

 private:
  // One slot of one kind of message between this rank and a peer.
  struct Channel {
    std::vector<char> inbox;
    std::unique_ptr<GlooBuffer> send, receive;
    int unfinished = 0;  // sends not yet waited for
    // The newest message that was sent, in all that is sent on the connection.
    std::uint64_t begin = 0, end = 0;
  };
  enum Kind { kHead, kShare, kResult, kKinds };

  Channel& channel(Kind kind, unsigned slot, int peer) {
    return channels_[kind][slot][static_cast<std::size_t>(peer)];
  }
  Channel& channel(Lane lane, unsigned slot, int peer) {
    return channel(lane == Lane::kShare ? kShare : kResult, slot, peer);
  }
  void bind(Channel& channel, GlooPair& pair, int number, std::size_t bytes);
  void send_from(int peer, Channel& channel, const void* data, std::size_t bytes);
  void finish(Channel& channel);
  [[noreturn]] void throw_wrong_length(int peer, std::size_t bytes, std::size_t expected) const;

  const std::vector<int> members_;
  const std::chrono::milliseconds link_patience_;
  // [slot][peer] to send. Outlives the connections: a thread of theirs may send them again.
  std::array<std::vector<std::vector<char>>, 2> heads_;
  GlooTransport transport_;
  std::array<std::array<std::vector<Channel>, 2>, kKinds> channels_;  // [kind][slot][peer]
  unsigned head_slot_ = 0;                                            // slot of the current call
  std::uint32_t sequence_ = 0;                                        // its number
};

}  // namespace backends
