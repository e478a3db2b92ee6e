// Sends messages over ZeroMQ through a pair of sockets per peer; the lower rank's socket listens.
//
// Each side publishes its key through the store, with a keyed hash, so that only keys of members
// are accepted. A link that leaves the host is encrypted and authenticated by CURVE. One that
// listens on a loopback address is only authenticated, by a password derived from the job's secret:
// CURVE makes a call of 1 MiB or more 5 to 7 times slower (ADR 8), and a process that can read
// loopback traffic can also read this process's memory.
//
// With context.link_patience a link outlives breaks of its connection (ADR 51): a thread makes a
// new one (zmq_repair.cc), and both sides send again what the other has not received.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "backends/abort_state.h"
#include "backends/backend.h"
#include "backends/transport/direct/links.h"
#include "backends/transport/repair/replay_buffer.h"
#include "backends/transport/zmq/zap_handler.h"

namespace backends {

enum class ZmqEncryption { kBetweenHosts, kAlways };

class ZmqLinks final : public Links {
 public:
  explicit ZmqLinks(const BackendContext& context,
                    ZmqEncryption encryption = ZmqEncryption::kBetweenHosts);
  ~ZmqLinks() override;
  ZmqLinks(const ZmqLinks&) = delete;
  ZmqLinks& operator=(const ZmqLinks&) = delete;

  // Collective: listens, publishes the address, connects, and waits for every peer's first message.
  // REQUIRES: called once.
  void connect(const BackendContext& context);

  void send_head(int peer, unsigned slot, const ControlWord& word, const void* payload,
                 std::size_t bytes) override;
  Head receive_head(int peer, unsigned slot) override;
  void send(int peer, Lane lane, unsigned slot, const void* data, std::size_t bytes) override;
  const char* receive(int peer, Lane lane, unsigned slot, std::size_t bytes) override;
  void finish_sends() override;
  void shut_down(bool drain) noexcept override;
  std::optional<ControlWord> arrived_word(int peer, unsigned slot,
                                          std::uint32_t sequence) noexcept override;
  void abort(std::string_view reason) noexcept override;

 private:
  // Precedes every payload. `number` counts the messages in one direction, to detect lost ones.
  struct Tag {
    std::uint32_t number;
    std::uint16_t kind;  // index of the slot
    std::uint16_t padding;
  };
  static constexpr std::uint16_t kHeadKind = 0,
                                 kKinds = 6,  // two slots each of heads, shares, results
      kFiller = kKinds;                       // without content
  static std::uint16_t kind_of(Lane lane, unsigned slot) {
    return static_cast<std::uint16_t>((lane == Lane::kShare ? 2 : 4) + slot);
  }
  // Precedes every payload in the bytes of a link that are counted, and kept to be sent again.
  struct KeptTag {
    Tag tag;
    std::uint64_t bytes;  // of the payload
  };
  static_assert(sizeof(KeptTag) <= ReplayBuffer::kHeldBytes, "it changes at once");

  // A connection, by libzmq's descriptor, which libzmq closes when the peer has closed the
  // connection or invalid data came. Then it reconnects, but messages are lost.
  class Connection {
   public:
    Connection() = default;
    explicit Connection(int fd);
    static Connection ended();
    int fd() const { return fd_; }
    bool has_ended() const;  // false if there is no connection yet
    void end() const;        // libzmq closes it then

   private:
    int fd_ = -1;
    ino_t inode_ = 0;  // because a later file may have the same descriptor
  };

  // While it is down, the socket is the repair thread's.
  enum class State { kUp, kDown, kGivenUp };
  // Positions of a message in the sent bytes. `needed` is the end of the last message before it
  // that is not a filler: the peer can finish its calls without fillers.
  struct Place {
    std::uint64_t needed = 0, end = 0;
  };
  struct Link {
    std::mutex mutex;  // held while the caller uses what the repair thread uses as well
    zmq::socket_t socket;
    int listener = -1;  // libzmq's descriptor; -1: none
    Connection connection;
    std::deque<zmq::message_t> early;  // received before this end knew of the link
    std::uint32_t sent = 0, received = 0;
    // Messages received ahead of the call that needs them, or in use by it.
    std::array<zmq::message_t, kKinds> slots;
    std::array<bool, kKinds> unconsumed{};  // received, not consumed yet

    std::atomic<State> state{State::kUp};
    std::string failure;                  // why it was given up
    std::array<zmq::message_t, 2> heads;  // the newest ones sent
    std::optional<ReplayBuffer> replay;   // if broken connections are restored
    std::array<Place, kKinds> places;     // of the newest messages
    std::uint64_t needed = 0;             // end of the newest one, fillers aside
    std::uint64_t received_bytes = 0;     // counted as those that are kept
  };
  // Sends whose buffers libzmq still reads (zero copy). Outlives the sockets.
  struct PendingSends {
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t open = 0;
    bool any() {
      const std::lock_guard lock(mutex);
      return open > 0;
    }
  };
  static void on_sent(void* data, void* pending);

  class Ends;    // zmq_ends.h
  class SetUp;   // zmq_set_up.h
  class Repair;  // zmq_repair.h

  Link& link(int peer) { return links_[static_cast<std::size_t>(peer)]; }
  bool resumes() const { return link_patience_.count() > 0; }
  const zmq::message_t& fetch(int peer, std::uint16_t kind);
  void receive_one(int peer);
  [[nodiscard]] bool receive_next(int peer, zmq::recv_flags flags);
  [[nodiscard]] static bool take_part(Link& l, zmq::message_t& part, zmq::recv_flags flags);
  void store(int peer, zmq::message_t first, zmq::message_t payload);
  bool is_hello(int peer, const zmq::message_t& message) const;
  [[nodiscard]] bool send_part(int peer, zmq::message_t& part, zmq::send_flags flags);
  static void keep(Link& l, const Tag& tag, const void* payload, std::size_t bytes);
  static void acknowledge(Link& l, std::uint64_t position);
  void copy_unacknowledged();
  // REQUIRES: the caller holds the link's mutex.
  void mark_down(Link& l);
  bool any_down() const;
  bool has_failed(const Link& l) const;
  void check_connections(int awaited, base::Deadline since) const;
  [[noreturn]] void throw_timeout(int peer, std::chrono::milliseconds time) const;
  std::size_t filler_bytes() const { return std::max(piece_bytes(size_), kHeadBytes); }
  // Includes the data before a payload here, and CURVE's frames.
  std::size_t max_message_bytes() const { return filler_bytes() + 64; }
  void send_filler(int peer);
  void stop_repairs() noexcept;
  void close_all() noexcept;

  const int rank_, size_;
  const bool encrypted_;
  const std::vector<int> members_;
  const std::chrono::milliseconds timeout_, link_patience_;
  const base::Clock& clock_;
  PendingSends pending_;
  zmq::context_t context_;
  std::unique_ptr<ZapHandler> zap_handler_;
  std::deque<Link> links_;
  AbortState abort_;
  std::mutex repair_mutex_;
  std::condition_variable_any repair_wake_;
  std::unique_ptr<Ends> ends_;  // until the end of connect(), or of the repairs
  std::jthread repairs_;        // last member, because it uses the others
};

}  // namespace backends
