// Creates, passes and maps the shared memory.
//
//   rank -> rank 0   ShmHello: its rank, a nonce
//
//   rank 0 -> rank   ShmChallenge: nonce, MAC(secret, "engine shm owner", transcript)
//
//   rank -> rank 0   MAC(secret, "engine shm rank", transcript)
//
//   rank 0 -> rank   the descriptor
//
// The transcript is the communicator's name, the hello and rank 0's nonce. Processes of other users
// are rejected before the first message, based on the kernel's credentials; no connection waits for
// another.
#include "backends/transport/shm/shm_segment.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <thread>
#include <vector>

#include "backends/backend_error.h"
#include "backends/open_files.h"
#include "backends/store/awaited_value.h"
#include "backends/store/connection_acceptor.h"
#include "backends/store/tcp_socket.h"
#include "io/base/files/retry_on_eintr.h"
#include "io/base/files/system_error_text.h"
#include "io/base/files/transient_error.h"

namespace backends {
namespace {

constexpr int kOpenPollMs = 100;  // between checks for failures

constexpr auto kProofTimeout = std::chrono::seconds(2);  // per connection
constexpr auto kQueuePause = std::chrono::milliseconds(5);
constexpr std::size_t kMaxUnprovenRanks = 64;  // beyond that the oldest is closed

struct ShmHello {
  std::int32_t rank;
  char nonce[kNonceBytes];
};
struct ShmChallenge {
  char nonce[kNonceBytes], mac[kMacBytes];
};

template <typename T>
std::string_view raw_bytes(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

[[noreturn]] void throw_errno(const std::string& what) {
  const int error = errno;
  const std::string text = what + ": " + base::system_error_text(error);
  if (!base::limit_text(error).empty()) throw LimitError(text);
  throw Error(text);
}

std::string shm_mac(const BackendContext& context, const char* label, const ShmHello& hello,
                    const ShmChallenge& challenge) {
  std::string transcript = context.prefix;
  transcript.push_back('\0');
  transcript.append(raw_bytes(hello)).append(challenge.nonce, kNonceBytes);
  return keyed_hash(context.secret, label, transcript);
}

bool is_own_user(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

// Sends a message as one packet, which always fits the buffer of a new connection.
bool send_packet(int to, std::string_view bytes) {
  return send(to, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}
bool receive_packet(int from, char* bytes, std::size_t count) {
  return recv(from, bytes, count, MSG_DONTWAIT) == static_cast<ssize_t>(count);
}
template <typename T>
bool receive_packet(int from, T& value) {
  return receive_packet(from, reinterpret_cast<char*>(&value), sizeof value);
}

// Throws if the wait for `what` must end: because of the failure of a member or the deadline.
void check_wait(const BackendContext& context, Deadline deadline, const std::string& what) {
  if (const auto failure = context.watch.known_failure(std::chrono::milliseconds(0)))
    failure->raise();
  if (context.clock.has_passed(deadline))
    throw PeerError("timeout after " + std::to_string(context.time_to_connect().count()) +
                    " ms, waiting for " + what);
}

// Waits until one of the sockets is readable.
void wait_readable(const BackendContext& context, std::vector<pollfd>& polled, Deadline deadline,
                   const std::string& what) {
  while (poll(polled.data(), polled.size(),
              std::min(kOpenPollMs, context.clock.poll_ms(deadline))) <= 0)
    check_wait(context, deadline, what);
}

sockaddr_un abstract_address(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(),
              std::min(name.size(), sizeof address.sun_path - 1));  // a leading zero byte
  return address;
}

socklen_t address_bytes(const std::string& name) {
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

Socket unix_socket(int flags = 0) {
  Socket socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
  if (!socket) throw_errno("unix socket");
  return socket;
}

void send_descriptor(int to, int fd) {
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof fd)] = {};
  char byte = 0;
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  if (sendmsg(to, &message, MSG_NOSIGNAL) < 0) throw_errno("passing shared memory to a rank");
}

base::Descriptor receive_descriptor(int from) {
  int fd = -1;
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof fd)] = {};
  char byte = 0;
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  const ssize_t got = base::retry_on_eintr(
      [&] { return recvmsg(from, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT); });
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS &&
      header->cmsg_len == CMSG_LEN(sizeof fd))
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  base::Descriptor descriptor(fd);
  if (got != 1 || fd < 0)
    throw PeerError("rank 0 closed the connection without passing its shared memory");
  return descriptor;
}

base::Descriptor create_memory(std::size_t bytes) {
  base::Descriptor memory(memfd_create("engine-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) throw_errno("shared memory");
  // Reserve the memory now: if it were missing later, an access would be a bus error.
  if (ftruncate(memory.fd(), static_cast<off_t>(bytes)) != 0 ||
      fallocate(memory.fd(), 0, 0, static_cast<off_t>(bytes)) != 0)
    throw_errno("shared memory of " + std::to_string(bytes) + " bytes");
  if (fcntl(memory.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    throw_errno("sealing shared memory");
  return memory;
}

// Rank 0's end of one connection.
struct ShmGuest {
  Socket socket;
  Deadline until{};
  bool challenged = false, done = false;
  ShmHello hello{};
  ShmChallenge challenge{};
};

class ShmServer {
 public:
  ShmServer(const BackendContext& context, std::size_t bytes)
      : context_(context),
        memory_(create_memory(bytes)),
        listener_(unix_socket(SOCK_NONBLOCK)),
        name_("engine-shm-" + to_hex(random_bytes(16))),
        served_(static_cast<std::size_t>(context.world_size), false),
        left_(context.world_size - 1) {
    const sockaddr_un address = abstract_address(name_);
    if (bind(listener_.fd(), reinterpret_cast<const sockaddr*>(&address), address_bytes(name_)) !=
            0 ||
        listen(listener_.fd(), context.world_size) != 0)
      throw_errno("listening on a unix socket");
  }

  base::Descriptor run(Deadline deadline) {
    context_.store.set(context_.prefix + "/shm", name_);
    while (left_ > 0) {
      std::vector<pollfd> polled{{acceptor_.polled_fd(listener_.fd()), POLLIN, 0}};
      for (const ShmGuest& guest : guests_) polled.push_back({guest.socket.fd(), POLLIN, 0});
      wait_readable(context_, polled, deadline,
                    std::to_string(left_) + " of this host's ranks to map shared memory");
      auto p = polled.begin() + 1;
      for (ShmGuest& guest : guests_) {
        if ((p++)->revents != 0) serve(guest);
      }
      std::erase_if(guests_, [this](const ShmGuest& guest) {
        return guest.done || context_.clock.has_passed(guest.until);
      });
      if (polled.front().revents != 0) accept_one();
    }
    context_.store.remove(context_.prefix + "/shm");
    return std::move(memory_);
  }

 private:
  void accept_one() {
    Socket socket = acceptor_.accept(listener_.fd());
    if (!socket && errno == EMFILE) throw_errno("passing shared memory to a rank");
    if (!socket || !is_own_user(socket.fd())) return;
    // A rank authenticates within milliseconds.
    if (guests_.size() == kMaxUnprovenRanks) guests_.pop_front();
    ShmGuest& guest = guests_.emplace_back();
    guest.socket = std::move(socket);
    guest.until = context_.clock.deadline_in(kProofTimeout);
  }

  void serve(ShmGuest& guest) {
    guest.done = true;  // unless everything is valid
    const int fd = guest.socket.fd();
    if (!guest.challenged) {
      if (!receive_packet(fd, guest.hello) || guest.hello.rank < 1 ||
          guest.hello.rank >= context_.world_size)
        return;
      std::ranges::copy(random_bytes(kNonceBytes), guest.challenge.nonce);
      std::ranges::copy(shm_mac(context_, "engine shm owner", guest.hello, guest.challenge),
                        guest.challenge.mac);
      guest.challenged = send_packet(fd, raw_bytes(guest.challenge));
      guest.done = !guest.challenged;
      return;
    }
    std::string proof(kMacBytes, '\0');
    if (!receive_packet(fd, proof.data(), proof.size()) ||
        !equal_in_constant_time(proof,
                                shm_mac(context_, "engine shm rank", guest.hello, guest.challenge)))
      return;
    const auto rank = static_cast<std::size_t>(guest.hello.rank);
    if (served_[rank]) return;
    send_descriptor(fd, memory_.fd());
    served_[rank] = true;
    --left_;
  }

  const BackendContext& context_;
  base::Descriptor memory_;
  Socket listener_;
  ConnectionAcceptor acceptor_;
  const std::string name_;
  std::list<ShmGuest> guests_;  // the oldest first
  std::vector<bool> served_;
  int left_;
};

base::Descriptor fetch(const BackendContext& context, Deadline deadline) {
  const std::string owner = "rank " + std::to_string(context.group_rank(0));
  const std::string name = awaited_value(context, context.prefix + "/shm", deadline,
                                         "the name of " + owner + "'s shared memory");
  const Socket socket = unix_socket(SOCK_NONBLOCK);
  const sockaddr_un address = abstract_address(name);
  const auto wait = [&] {
    std::vector<pollfd> polled{{socket.fd(), POLLIN, 0}};
    wait_readable(context, polled, deadline, owner + "'s shared memory");
  };
  while (connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address), address_bytes(name)) !=
         0) {
    if (!base::is_transient(errno))
      throw_errno(owner +
                  "'s unix socket cannot be reached, although it reports this host "
                  "(another container?)");
    check_wait(context, deadline, "room in the queue of " + owner + "'s unix socket");
    std::this_thread::sleep_for(kQueuePause);
  }
  ShmHello hello{context.rank, {}};
  std::ranges::copy(random_bytes(kNonceBytes), hello.nonce);
  if (!send_packet(socket.fd(), raw_bytes(hello))) throw_errno("asking for shared memory");
  wait();
  ShmChallenge challenge{};
  if (!receive_packet(socket.fd(), challenge))
    throw PeerError(owner +
                    " has not shared its memory: it has ended (then it says why), or its process "
                    "belongs to another user or is not of this group");
  if (!equal_in_constant_time({challenge.mac, kMacBytes},
                              shm_mac(context, "engine shm owner", hello, challenge)))
    throw AuthenticationError("the owner of the shared memory does not know this job's secret");
  if (!send_packet(socket.fd(), shm_mac(context, "engine shm rank", hello, challenge)))
    throw_errno("asking for shared memory");
  wait();
  return receive_descriptor(socket.fd());
}

}  // namespace

ShmSegment::ShmSegment(const BackendContext& context, std::size_t bytes) : bytes_(bytes) {
  const auto deadline = context.clock.deadline_in(context.time_to_connect());
  const base::Descriptor memory =
      context.rank == 0 ? ShmServer(context, bytes).run(deadline) : fetch(context, deadline);
  void* mapped =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory.fd(), 0);
  if (mapped == MAP_FAILED)
    throw_errno("mapping shared memory of " + std::to_string(bytes) + " bytes");
  data_ = static_cast<char*>(mapped);
}

ShmSegment::~ShmSegment() { munmap(data_, bytes_); }

}  // namespace backends
