// Moves queued parts over the connections of a mesh. Both ends know in advance what is sent and
// received, and in which order, so parts carry no headers and arrive directly in their destination.
//
// The first part of a call on every connection, in each direction, is the call's control word. A
// peer's word is compared as soon as it has arrived, before the parts that follow it are read: if
// the peer made a different call, those bytes have another meaning.
//
// The calling thread serves all connections: while it waits for one part, it sends and receives on
// all others. So two ranks that both send before they receive never block each other, however small
// the kernel's buffers are.
#pragma once

#include <poll.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/control_word.h"
#include "backends/transport/socket/link_wait.h"
#include "backends/transport/socket/socket_mesh.h"

namespace backends {

// One caller at a time. Allocates nothing after construction, unless it fails. Throws PeerError and
// MismatchError; then only give_up() and destruction are allowed.
class LinkExchange {
 public:
  static constexpr std::size_t kInboxBytes = 16 << 10;

  LinkExchange(std::shared_ptr<SocketMesh> mesh, const BackendContext& context);

  // Starts a call and its deadline.
  void begin(const ControlWord& word);
  // Queues sending and receiving the word with every peer, unless done in this call already.
  void exchange_words();

  // Queue a part on connection `piece` modulo their number; wait if the queue is full. The memory
  // must not be changed until wait_all(), or until the receipt has been waited for.
  struct Receipt {
    std::size_t link = 0;
    std::uint32_t end = 0;  // received when in.first reaches it
  };
  // Returns the position after the part among all bytes that are sent on its connection.
  std::uint64_t send(int peer, std::size_t piece, const char* data, std::size_t bytes);
  // `answers`: a position on the same connection, as send() returns it, if the peer sends this
  // part only after it has received all bytes before that.
  Receipt receive(int peer, std::size_t piece, char* data, std::size_t bytes,
                  std::uint64_t answers = 0);
  // Sends and receives the word and one part; the peer's part goes to its inbox. REQUIRES: bytes <=
  // kInboxBytes; nothing else in this call.
  void exchange_small(int peer, const char* data, std::size_t bytes);
  const char* inbox(int peer) const {
    return inboxes_[static_cast<std::size_t>(peer)].get() + sizeof(ControlWord);
  }

  void wait_for(Receipt receipt);
  // Afterwards the memory of all parts may change.
  void wait_all();
  // After an exception: the memory of all parts is no longer read.
  void give_up() noexcept { mesh_->end_resuming(); }

 private:
  static constexpr std::uint32_t kMaxQueued =
      16;  // parts per connection and direction; a power of two
  struct Part {
    char* data;
    std::size_t bytes;
    bool starts_with_word;
    std::uint64_t answers = 0;
  };
  struct Queue {
    std::array<Part, kMaxQueued> parts;
    std::uint32_t first = 0, end = 0;  // bounds of the unfinished parts; never reset
    std::size_t done = 0;              // bytes done of the first part
    bool opened = false;               // true if the word is queued
    bool empty() const { return first == end; }
    std::uint32_t room() const { return kMaxQueued - (end - first); }
    const Part& front() const { return parts[first % kMaxQueued]; }
    void push(const Part& part) { parts[end++ % kMaxQueued] = part; }
    void advance(std::size_t bytes);
  };
  struct Link {
    int fd = -1, peer = -1;
    MeshLink* stream = nullptr;          // on fd
    std::uint64_t queued = 0;            // bytes to be sent, of all calls
    std::uint64_t of_earlier_calls = 0;  // of them
    Queue out, in;
    ControlWord word;  // the peer's
  };

  std::size_t index(int peer, std::size_t piece) const {
    return static_cast<std::size_t>(peer) * streams_ + piece % streams_;
  }
  void push_out(Link& link, const Part& part);
  void open_out(Link& link);
  void open_in(Link& link);
  [[nodiscard]] bool pump();
  [[nodiscard]] bool pump_out(Link& link);
  [[nodiscard]] bool pump_in(Link& link);
  void check_word(const Link& link, const Part& part);
  friend class LinkWait;
  void sleep();
  [[nodiscard]] const Link* find_broken();
  [[noreturn]] void on_abort();
  [[noreturn]] void on_timeout();
  bool is_late() const { return clock_.has_passed(deadline_); }
  void exchange_words_on_failure();
  void send_waiting_words();
  [[nodiscard]] bool receive_word_on_failure(Link& link);
  [[noreturn]] void fail(const std::string& text);
  [[noreturn]] void fail_link(const Link& link, int error);
  std::string awaited_ranks() const;
  std::string name_of(const Link& link) const {
    return "rank " + std::to_string(members_[static_cast<std::size_t>(link.peer)]);
  }

  const std::shared_ptr<SocketMesh> mesh_;
  const int rank_;
  const std::vector<int> members_;
  const std::chrono::milliseconds timeout_;
  const base::Clock& clock_;
  const std::size_t streams_;
  std::vector<Link> links_;  // [peer][stream]
  std::vector<std::unique_ptr<char[]>> inboxes_;
  std::vector<pollfd> polled_;
  LinkWait wait_;
  ControlWord word_;
  base::Deadline deadline_;
};

}  // namespace backends
