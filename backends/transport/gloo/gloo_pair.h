// One connection to a peer as a gloo::transport::Pair, and the buffers bound to it.
//
// Every message has a GlooFrame before its payload. The frame is checked before a byte of the
// payload is stored: its digest, its number, and that the payload fits the buffer bound to its
// slot.
#pragma once

#include <gloo/transport/address.h>
#include <gloo/transport/buffer.h>
#include <gloo/transport/pair.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/transport/gloo/gloo_frame.h"
#include "backends/transport/socket/mesh_link.h"

namespace backends {

class GlooPair;
class GlooTransport;

static_assert(sizeof(GlooFrame) <= ReplayBuffer::kHeldBytes, "a header changes at once");

// Same as gloo::transport::Buffer: sends from its memory, or receives into it. REQUIRES: the pair
// outlives it.
class GlooBuffer final : public gloo::transport::Buffer {
 public:
  GlooBuffer(GlooPair& pair, int slot, void* memory, std::size_t bytes)
      : Buffer(slot, memory, bytes), pair_(pair) {}
  ~GlooBuffer() override;
  GlooBuffer(const GlooBuffer&) = delete;
  GlooBuffer& operator=(const GlooBuffer&) = delete;

  void send(std::size_t offset, std::size_t length, std::size_t roffset) override;
  void waitRecv() override;
  void waitSend() override;  // waits until the memory is no longer read

  // Returns the bytes of the newest message that have arrived: all of it after waitRecv().
  std::size_t arrived() const { return arrived_; }

 private:
  friend class GlooPair;
  GlooPair& pair_;
  int received_ = 0, sent_ = 0;  // messages not waited for
  std::size_t arrived_ = 0;
};

// structure: half of the functions are Gloo's interface
class GlooPair final : public gloo::transport::Pair {
 public:
  // `fd`: connected, non-blocking, owned by the mesh like `link`, which sends and receives on it.
  GlooPair(GlooTransport& transport, int peer, int fd, MeshLink& link);

  // `memory` == nullptr for sending: offsets are addresses.
  std::unique_ptr<GlooBuffer> bind_sender(int slot, void* memory, std::size_t bytes);
  std::unique_ptr<GlooBuffer> bind_receiver(int slot, void* memory, std::size_t bytes);

  int peer() const { return peer_; }
  int fd() const { return fd_; }
  bool has_output() const { return first_ != end_; }
  MeshLink& link() const { return link_; }
  // Returns the position after the newest message in all that is sent on the connection.
  std::uint64_t queued_bytes() const { return queued_bytes_; }
  // Return true if any byte moved. A failure is stored in trouble().
  bool pump_out();
  bool pump_in();
  // Returns "", or why this connection can no longer be used.
  const std::string& trouble() const { return trouble_; }
  void drop_output() noexcept;

  // Gloo's interface. The connection exists already, and the mesh closes it.
  const gloo::transport::Address& address() const override { return address_; }
  void connect(const std::vector<char>& bytes) override;
  void close() override {}
  void setSync(bool, bool) override {}
  std::unique_ptr<gloo::transport::Buffer> createSendBuffer(int slot, void* memory,
                                                            std::size_t bytes) override;
  std::unique_ptr<gloo::transport::Buffer> createRecvBuffer(int slot, void* memory,
                                                            std::size_t bytes) override;
  void send(gloo::transport::UnboundBuffer* buffer, std::uint64_t tag, std::size_t offset,
            std::size_t bytes) override;
  void recv(gloo::transport::UnboundBuffer* buffer, std::uint64_t tag, std::size_t offset,
            std::size_t bytes) override;

 private:
  friend class GlooBuffer;
  static constexpr std::uint32_t kMaxQueued = 16;        // frames; a power of two
  static constexpr std::size_t kStagedBytes = 16 << 10;  // headers, and short payloads with them

  class Address final : public gloo::transport::Address {
   public:
    explicit Address(std::string text) : text_(std::move(text)) {}
    std::string str() const override { return text_; }
    std::vector<char> bytes() const override { return {}; }

   private:
    std::string text_;
  };
  struct Output {
    GlooFrame frame;
    const char* payload;
    GlooBuffer* buffer;
  };

  void enqueue(GlooBuffer& buffer, const char* payload, std::size_t length, std::size_t roffset);
  void count_sent(std::size_t bytes);
  void take_staged();
  bool begin_frame(const GlooFrame& frame);
  void add_arrived(std::size_t bytes);
  void forget(GlooBuffer& buffer) noexcept;

  GlooTransport& transport_;
  const int peer_, fd_;
  MeshLink& link_;
  const Address address_;
  std::string trouble_;

  std::array<Output, kMaxQueued> output_{};
  std::uint32_t first_ = 0, end_ = 0;  // bounds of the unsent frames; never reset
  std::size_t sent_bytes_ = 0;         // sent bytes of the first unsent frame, with its header
  std::uint64_t queued_bytes_ = 0;     // of all frames, with their headers
  std::uint32_t next_out_ = 0, next_in_ = 0;

  std::map<std::uint32_t, GlooBuffer*> receivers_;  // by slot
  GlooFrame frame_;                                 // the frame whose payload arrives
  GlooBuffer* receiver_ = nullptr;                  // its receiver; null between frames
  std::vector<char> staged_;
  std::size_t staged_begin_ = 0, staged_end_ = 0;
};

}  // namespace backends
