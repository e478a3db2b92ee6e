// Implements the exchange of messages: a header with tag and size, then the payload.
//
// A payload is received in place if its reception has been requested, else into memory of its own.
// A connection whose unclaimed messages have kMaxUnclaimed bytes is not read while no reception
// waits for its rank: the sender then waits.
#include "backends/transport/socket/socket_messages.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <list>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/group.h"
#include "backends/transport/socket/socket_mesh.h"
#include "io/base/files/transient_error.h"
#include "io/base/files/wake_event.h"

namespace backends {
namespace {

using base::Deadline;

constexpr std::size_t kMaxUnclaimed = 1 << 20;
constexpr auto kFailurePoll = std::chrono::milliseconds(200);
// Instead of a size: the sender sends no more, and receives nothing.
constexpr std::uint64_t kNoMore = (std::uint64_t{1} << 56) - 1;
constexpr auto kTimeForNoMore = std::chrono::seconds(1);

// Returns bytes. The kernel may promise more, and then kill the process that writes to them.
std::uint64_t host_memory() {
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

struct MessageHeader {
  std::uint64_t tag = 0;
  std::uint64_t bytes : 56 = 0;
  std::uint64_t kind : 8 = 0;
};
static_assert(sizeof(MessageHeader) == 16);

struct Outgoing {
  Message message;
  MessageHeader header;
  std::size_t sent = 0;  // bytes of header and payload
  bool tried = false;    // the link may hold some of its bytes
};

struct Unclaimed {
  std::uint64_t tag = 0;
  std::uint8_t kind = 0;
  std::vector<std::byte> payload;
};

struct Peer {
  std::deque<Outgoing> sends;
  // The message that is being received. Without `into` its payload goes to `unclaimed`, unless its
  // reception has failed.
  MessageHeader header;
  std::size_t received = 0;  // bytes of header and payload
  std::optional<Message> into;
  std::vector<std::byte> spill;
  bool discards = false;

  std::deque<Unclaimed> complete;
  std::size_t unclaimed_bytes = 0;
  std::string failure;  // why the connection cannot be used; "": it can
  bool left = false;    // because its rank has left in order
};

std::string kind_text(std::uint8_t kind) { return "[" + std::to_string(kind) + "]"; }
std::string size_text(std::size_t bytes) { return std::to_string(bytes) + " bytes"; }

class SocketMessages final : public Messages {
 public:
  SocketMessages(const BackendContext& context, std::chrono::milliseconds detection_time)
      : rank_(context.rank),
        members_(context.members),
        watch_(context.watch),
        detection_time_(detection_time),
        mesh_(std::make_shared<SocketMesh>(context)),
        peers_(static_cast<std::size_t>(context.world_size)),
        scratch_(RecordStream::kRecordBytes) {
    thread_ = std::thread([this] { run(); });
  }
  ~SocketMessages() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.wake();
    thread_.join();
    watch_.retain_until_group_ends(mesh_);  // the last data may not have reached its rank yet
  }

  void send(Message message) override { post({std::move(message), true}); }
  void receive(Message message) override { post({std::move(message), false}); }
  void abort(std::string_view reason) noexcept override { mesh_->abort(reason); }

 private:
  struct Posted {
    Message message;
    bool is_send;
  };

  void post(Posted posted) {
    const int peer = posted.message.peer;
    const bool any = peer == kAnyPeer && !posted.is_send;
    if (!any && (peer < 0 || peer >= static_cast<int>(peers_.size()) || peer == rank_))
      throw ConfigurationError(
          "a message has rank " + std::to_string(peer) + " at its other end: expected 0.." +
          std::to_string(peers_.size() - 1) + " other than " + std::to_string(rank_));
    {
      const std::lock_guard lock(mutex_);
      posted_.push_back(std::move(posted));
    }
    wake_.wake();
  }

  std::string rank_text(int peer) const {
    return peer == kAnyPeer ? "any rank"
                            : "rank " + std::to_string(members_[static_cast<std::size_t>(peer)]);
  }
  std::string call_text(const Message& message, bool is_send) const {
    return "rank " + std::to_string(members_[static_cast<std::size_t>(rank_)]) + ", " +
           (is_send ? "send" : "receive") + " of " + size_text(message.bytes) +
           (is_send ? " to " : " from ") + rank_text(message.peer) + ": ";
  }
  void fail(const Message& message, bool is_send, const std::string& why) const {
    message.done(std::make_exception_ptr(PeerError(call_text(message, is_send) + why)),
                 message.peer);
  }

  // The thread.
  void run() {
    for (bool stopping = false; !stopping || has_sends();) {
      if (!stopping) {
        stopping = take_posted();
        if (stopping && !mesh_->aborted()) announce_end();
      }
      for (std::size_t p = 0; p < peers_.size(); ++p) {
        pump_sends(peers_[p], static_cast<int>(p));
        pump_receives(peers_[p], static_cast<int>(p));
      }
      expire();
      look_for_failures();
      if (!stopping || has_sends()) wait();
    }
    fail_everything("the messages of this rank were closed");
  }

  bool take_posted() {
    std::vector<Posted> taken;
    bool stopping = false;
    {
      const std::lock_guard lock(mutex_);
      taken.swap(posted_);
      stopping = stopping_;
    }
    for (Posted& posted : taken) {
      if (posted.is_send) {
        const MessageHeader header{posted.message.tag, posted.message.bytes, posted.message.kind};
        peers_[static_cast<std::size_t>(posted.message.peer)].sends.push_back(
            {std::move(posted.message), header});
      } else {
        request(std::move(posted.message));
      }
    }
    return stopping;
  }

  // Satisfies a reception from the unclaimed messages, or notes it.
  void request(Message message) {
    for (std::size_t p = 0; p < peers_.size(); ++p) {
      if (message.peer != kAnyPeer && message.peer != static_cast<int>(p)) continue;
      Peer& peer = peers_[p];
      for (auto found = peer.complete.begin(); found != peer.complete.end(); ++found) {
        if (found->tag != message.tag) continue;
        const Unclaimed unclaimed = std::move(*found);
        peer.unclaimed_bytes -= unclaimed.payload.size();
        peer.complete.erase(found);
        return deliver(message, static_cast<int>(p), unclaimed);
      }
    }
    receives_.push_back(std::move(message));
  }
  // Returns the first reception for this message, no longer noted.
  std::optional<Message> claim(int p, std::uint64_t tag) {
    for (auto found = receives_.begin(); found != receives_.end(); ++found) {
      if (found->tag != tag || (found->peer != kAnyPeer && found->peer != p)) continue;
      Message message = std::move(*found);
      receives_.erase(found);
      return message;
    }
    return std::nullopt;
  }
  bool fits(const Message& message, int p, std::size_t bytes, std::uint8_t kind) const {
    if (bytes == message.bytes && kind == message.kind) return true;
    const bool kinds = kind != message.kind;
    message.done(std::make_exception_ptr(MismatchError(
                     call_text(message, false) +
                     (kinds ? "of kind " + kind_text(message.kind) + ", " : "") + rank_text(p) +
                     " sent " + size_text(bytes) + (kinds ? " of kind " + kind_text(kind) : ""))),
                 p);
    return false;
  }
  void deliver(const Message& message, int p, const Unclaimed& sent) {
    const std::vector<std::byte>& payload = sent.payload;
    if (!fits(message, p, payload.size(), sent.kind)) return;
    if (!payload.empty()) std::memcpy(message.data, payload.data(), payload.size());
    message.done(nullptr, p);
  }

  void pump_sends(Peer& peer, int p) {
    while (peer.failure.empty() && !peer.sends.empty()) {
      Outgoing& out = peer.sends.front();
      std::array<iovec, 2> parts{};
      std::size_t count = 0;
      if (out.sent < sizeof out.header)
        parts[count++] = {reinterpret_cast<char*>(&out.header) + out.sent,
                          sizeof out.header - out.sent};
      const std::size_t at = out.sent < sizeof out.header ? 0 : out.sent - sizeof out.header;
      if (at < out.message.bytes) parts[count++] = {out.message.data + at, out.message.bytes - at};
      out.tried = true;
      const ssize_t sent = mesh_->link(p, 0).send(std::span(parts.data(), count));
      if (sent < 0 && base::is_transient(errno)) return;
      if (sent < 0) return break_link(peer, p, mesh_->link(p, 0).error_text(errno));
      out.sent += static_cast<std::size_t>(sent);
      if (out.sent < sizeof out.header + out.message.bytes) continue;
      const Message done = std::move(out.message);
      peer.sends.pop_front();
      done.done(nullptr, p);
    }
  }

  bool is_wanted(const Peer& peer, int p) const {
    if (peer.received > 0 || peer.unclaimed_bytes < kMaxUnclaimed) return true;
    for (const Message& message : receives_)
      if (message.peer == kAnyPeer || message.peer == p) return true;
    return false;
  }
  void pump_receives(Peer& peer, int p) {
    if (p == rank_) return;
    while (peer.failure.empty() && is_wanted(peer, p)) {
      iovec part = next_part(peer);
      const ssize_t got = mesh_->link(p, 0).receive(std::span(&part, 1));
      if (got < 0 && base::is_transient(errno)) return;
      if (got <= 0)
        return break_link(peer, p, got == 0 ? "was closed" : mesh_->link(p, 0).error_text(errno));
      peer.received += static_cast<std::size_t>(got);
      if (peer.received == sizeof peer.header && peer.header.bytes == kNoMore)
        return note_end(peer, p);
      if (peer.received == sizeof peer.header) begin_payload(peer, p);
      if (peer.received == sizeof peer.header + peer.header.bytes) end_payload(peer, p);
    }
  }
  iovec next_part(Peer& peer) {
    if (peer.received < sizeof peer.header)
      return {reinterpret_cast<char*>(&peer.header) + peer.received,
              sizeof peer.header - peer.received};
    const std::size_t at = peer.received - sizeof peer.header, left = peer.header.bytes - at;
    if (peer.into) return {peer.into->data + at, left};
    if (peer.discards) return {scratch_.data(), std::min(left, scratch_.size())};
    return {peer.spill.data() + at, left};
  }
  void begin_payload(Peer& peer, int p) {
    peer.into = claim(p, peer.header.tag);
    peer.discards = peer.into && !fits(*peer.into, p, peer.header.bytes, peer.header.kind);
    if (peer.discards) {
      peer.into.reset();
    } else if (!peer.into) {
      make_spill(peer, p);
    }
  }
  // The size is what the other rank says, and may be any number.
  void make_spill(Peer& peer, int p) {
    try {
      if (peer.header.bytes > host_memory()) throw std::bad_alloc();
      peer.spill.resize(peer.header.bytes);
    } catch (const std::exception&) {
      break_link(peer, p,
                 "carries a message of " + size_text(peer.header.bytes) +
                     " that no reception has claimed, for which there is no memory");
    }
  }
  void end_payload(Peer& peer, int p) {
    peer.received = 0;
    if (peer.into) {
      const Message message = std::move(*std::exchange(peer.into, std::nullopt));
      return message.done(nullptr, p);
    }
    if (std::exchange(peer.discards, false)) return;
    Unclaimed unclaimed{peer.header.tag, static_cast<std::uint8_t>(peer.header.kind),
                        std::exchange(peer.spill, {})};
    // The reception may have been requested meanwhile.
    if (const std::optional<Message> message = claim(p, peer.header.tag))
      return deliver(*message, p, unclaimed);
    peer.unclaimed_bytes += unclaimed.payload.size();
    peer.complete.push_back(std::move(unclaimed));
  }

  void note_end(Peer& peer, int p) {
    peer.failure = rank_text(p) + " has left the group";
    peer.left = true;
    peer.received = 0;
  }
  // Lets the other ranks know that this one has sent all that it sends.
  void announce_end() {
    for (std::size_t p = 0; p < peers_.size(); ++p) {
      if (static_cast<int>(p) == rank_ || !peers_[p].failure.empty()) continue;
      Message end{.peer = static_cast<int>(p),
                  .deadline = base::deadline_in(kTimeForNoMore),
                  .done = [](const std::exception_ptr&, int) {}};
      peers_[p].sends.push_back({std::move(end), {0, kNoMore, 0}});
    }
  }
  // A rank that leaves closes its connections: an error only for who still waits for it.
  void break_link(Peer& peer, int p, const std::string& what) {
    peer.failure = "the connection to " + rank_text(p) + " " + what;
    peer.spill = {};
    peer.received = 0;
  }

  void fail_all_of(Peer& peer, int p, const std::string& why) {
    for (; !peer.sends.empty(); peer.sends.pop_front()) fail(peer.sends.front().message, true, why);
    if (peer.into) fail(*std::exchange(peer.into, std::nullopt), false, why);
    for (auto m = receives_.begin(); m != receives_.end();) {
      if (m->peer != p) {
        ++m;
        continue;
      }
      const Message message = std::move(*m);
      m = receives_.erase(m);
      fail(message, false, why);
    }
  }
  void fail_everything(const std::string& why) {
    for (std::size_t p = 0; p < peers_.size(); ++p)
      fail_all_of(peers_[p], static_cast<int>(p), why);
    for (; !receives_.empty(); receives_.pop_front()) fail(receives_.front(), false, why);
  }
  bool waits_for(const Peer& peer, int p) const {
    if (!peer.sends.empty() || peer.into) return true;
    for (const Message& message : receives_)
      if (message.peer == p) return true;
    return false;
  }
  bool has_sends() const {
    for (const Peer& peer : peers_)
      if (!peer.sends.empty()) return true;
    return false;
  }
  bool has_work() const { return has_sends() || !receives_.empty() || has_partial(); }
  bool has_partial() const {
    for (const Peer& peer : peers_)
      if (peer.into) return true;
    return false;
  }

  bool have_all_left() const {
    for (std::size_t p = 0; p < peers_.size(); ++p)
      if (static_cast<int>(p) != rank_ && !peers_[p].left) return false;
    return true;
  }
  void look_for_failures() {
    if (!has_work()) return;
    if (mesh_->aborted()) return fail_everything(mesh_->abort_reason());
    if (const auto failure = watch_.known_failure(std::chrono::milliseconds(0)))
      return fail_everything(failure->text);
    for (std::size_t p = 0; p < peers_.size(); ++p) {
      Peer& peer = peers_[p];
      if (peer.failure.empty() || !waits_for(peer, static_cast<int>(p))) continue;
      if (!peer.left)
        if (const auto failure = watch_.known_failure(detection_time_))
          return fail_everything(failure->text);
      fail_all_of(peer, static_cast<int>(p), peer.failure);
    }
    if (have_all_left()) fail_everything("all other ranks have left the group");
  }

  // Fails what is late. A send of which the link may hold a part cannot be withdrawn alone.
  void expire() {
    const auto now = std::chrono::steady_clock::now();
    for (std::size_t p = 0; p < peers_.size(); ++p) {
      Peer& peer = peers_[p];
      for (auto out = peer.sends.begin(); out != peer.sends.end();) {
        if (out->message.deadline > now) {
          ++out;
          continue;
        }
        if (out->tried) peer.failure = "an earlier message to it was too late";
        const Message message = std::move(out->message);
        out = peer.sends.erase(out);
        fail(message, true, "it was not taken before the deadline");
      }
      if (peer.into && peer.into->deadline <= now) {
        peer.discards = true;
        fail(*std::exchange(peer.into, std::nullopt), false, "it was incomplete at the deadline");
      }
    }
    for (auto m = receives_.begin(); m != receives_.end();) {
      if (m->deadline > now) {
        ++m;
        continue;
      }
      const Message message = std::move(*m);
      m = receives_.erase(m);
      fail(message, false, "nothing came before the deadline");
    }
  }

  int wait_milliseconds() const {
    if (!has_work()) return -1;
    Deadline next = base::deadline_in(kFailurePoll);
    for (const Message& message : receives_) next = std::min(next, message.deadline);
    for (const Peer& peer : peers_) {
      for (const Outgoing& out : peer.sends) next = std::min(next, out.message.deadline);
      if (peer.into) next = std::min(next, peer.into->deadline);
    }
    return base::milliseconds_left(next);
  }
  void wait() {
    constexpr int kMessagePollMs = 20;  // while a connection is restored
    int time = wait_milliseconds();
    polled_.clear();
    polled_.push_back({wake_.fd(), POLLIN, 0});
    polled_.push_back({mesh_->wake_fd(), POLLIN, 0});
    for (std::size_t p = 0; p < peers_.size(); ++p) {
      const Peer& peer = peers_[p];
      const int number = static_cast<int>(p);
      if (number == rank_ || !peer.failure.empty()) continue;
      const int events =
          (is_wanted(peer, number) ? POLLIN : 0) | (peer.sends.empty() ? 0 : POLLOUT);
      if (events == 0) continue;
      if (mesh_->link(number, 0).is_down())
        time = time < 0 ? kMessagePollMs : std::min(time, kMessagePollMs);
      else
        polled_.push_back({mesh_->fd(number, 0), static_cast<short>(events), 0});
    }
    poll(polled_.data(), polled_.size(), time);
    if (polled_[1].revents != 0) mesh_->take_wake();
    if (polled_.front().revents != 0) wake_.clear();
  }

  const int rank_;
  const std::vector<int> members_;
  FailureDetector& watch_;
  const std::chrono::milliseconds detection_time_;
  const std::shared_ptr<SocketMesh> mesh_;
  const base::WakeEvent wake_;
  // Used by the thread alone:
  std::vector<Peer> peers_;
  std::list<Message> receives_;  // requested, in that order, without the ones in Peer::into
  std::vector<std::byte> scratch_;
  std::vector<pollfd> polled_;

  std::mutex mutex_;
  std::vector<Posted> posted_;  // guarded by mutex_
  bool stopping_ = false;       // likewise
  std::thread thread_;          // last: it uses all of the above
};

}  // namespace

std::unique_ptr<Messages> Group::make_messages(const std::vector<int>&) {
  throw ConfigurationError("messages are exchanged by two or more processes, not by one");
}

std::unique_ptr<Messages> make_socket_messages(const BackendContext& context,
                                               std::chrono::milliseconds detection_time) {
  BackendContext one_stream = context;
  one_stream.streams = 1;
  return std::make_unique<SocketMessages>(one_stream, detection_time);
}

}  // namespace backends
