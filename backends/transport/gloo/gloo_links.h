// Messages over Gloo's pairs: buffers bound to slots; Gloo's algorithms are not used.
#pragma once

#include <gloo/transport/buffer.h>

#include <array>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/transport/direct/links.h"
#include "backends/transport/gloo/gloo_mesh.h"

namespace backends {

class GlooLinks final : public Links {
 public:
  explicit GlooLinks(const BackendContext& context);
  // Waits until Gloo's thread no longer writes to the inboxes.
  ~GlooLinks() override;
  GlooLinks(const GlooLinks&) = delete;
  GlooLinks& operator=(const GlooLinks&) = delete;

  // Collective. Throws PeerError and what the store throws.
  void connect(const BackendContext& context);

  void send_head(int peer, const ControlWord& word, const void* payload,
                 std::size_t bytes) override;
  Head receive_head(int peer) override;
  void send(int peer, Lane lane, unsigned slot, const void* data, std::size_t bytes) override;
  const char* receive(int peer, Lane lane, unsigned slot, std::size_t bytes) override;
  void finish_sends() override;
  void shut_down(bool drain) noexcept override;
  std::optional<ControlWord> arrived_word(int peer, std::uint32_t sequence) noexcept override;
  std::string waiting_text() const override;
  void abort(std::string_view reason) noexcept override;

 private:
  // On an attempt to connect; the kind is also its form in the store.
  struct Verdict {
    enum class Kind : char { kGood = 'g', kAgain = 'a', kEnd = 'e' } kind;
    std::string text;
  };
  // One slot of one kind of message between this rank and a peer.
  struct Channel {
    std::unique_ptr<gloo::transport::Buffer> send, receive;
    std::vector<char> inbox;
    int unfinished = 0;  // sends not yet waited for
  };
  enum Kind { kHead, kShare, kResult, kKinds };

  Channel& channel(Kind kind, unsigned slot, int peer) {
    return channels_[kind][slot][static_cast<std::size_t>(peer)];
  }
  Channel& channel(Lane lane, unsigned slot, int peer) {
    return channel(lane == Lane::kShare ? kShare : kResult, slot, peer);
  }
  static std::shared_ptr<GlooMesh> make_mesh(const BackendContext& context);
  void install(std::shared_ptr<GlooMesh> mesh);
  void bind_channels();
  void bind(Channel& channel, gloo::transport::Pair& out, gloo::transport::Pair& in, int number,
            std::size_t bytes);
  std::string prove(const BackendContext& context);
  std::string check(int peer, Channel& channel, const std::string& proof);
  void widen();
  static Verdict agree(const BackendContext& context, const std::string& trouble, int number,
                       std::chrono::steady_clock::time_point begin);
  void disconnect();
  void send_from(int peer, Channel& channel, const void* data, std::size_t bytes);
  void wait_for(int peer, Channel& channel);
  void finish(int peer, Channel& channel);

  const std::vector<int> members_;
  mutable std::mutex mutex_;                             // between abort() and install()
  bool aborted_ = false;                                 // guarded by it
  std::shared_ptr<GlooMesh> mesh_;                       // since connect()
  std::array<std::vector<std::vector<char>>, 2> heads_;  // [slot][peer] to send
  std::array<std::array<std::vector<Channel>, 2>, kKinds> channels_;  // [kind][slot][peer]
  std::vector<Channel> proofs_;  // [2 * peer] out, [2 * peer + 1] in: of both directions
  // As proofs_: whether the connection still stood when its buffers had been bound. Gloo tells of
  // its end only the buffers that there are at that moment; later ones would wait for the whole
  // timeout.
  std::vector<bool> hears_;
  unsigned head_slot_ = 0;  // of the current call
};

}  // namespace backends
