// Creates, passes and maps the shared memory.
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
#include <vector>

#include "backends/backend_error.h"
#include "backends/open_files.h"
#include "backends/store/tcp_socket.h"
#include "io/base/deadline.h"

namespace backends {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kOpenPollMs = 100;  // between checks for failures

// Sent by each side: its rank and a keyed hash of this communicator's name, the rank and the side.
struct Proof {
  std::int32_t rank;
  char mac[kMacBytes];
};

[[noreturn]] void throw_errno(const std::string& what) {
  throw Error(what + ": " + system_error_text(errno));
}

Proof make_proof(const BackendContext& context, const char* label, int rank) {
  Proof proof{rank, {}};
  const std::string mac =
      keyed_hash(context.secret, label, context.prefix + "/" + std::to_string(rank));
  std::copy(mac.begin(), mac.end(), proof.mac);
  return proof;
}

bool proves(const BackendContext& context, const char* label, const Proof& proof) {
  const Proof expected = make_proof(context, label, proof.rank);
  return equal_in_constant_time({expected.mac, kMacBytes}, {proof.mac, kMacBytes});
}

void wait_readable(const BackendContext& context, int fd, Clock::time_point deadline,
                   const std::string& what) {
  for (;;) {
    pollfd p{fd, POLLIN, 0};
    if (poll(&p, 1, std::min(kOpenPollMs, milliseconds_left(deadline))) > 0) return;
    if (const auto failure = context.watch.known_failure(std::chrono::milliseconds(0)))
      throw PeerError(*failure);
    if (base::has_passed(deadline))
      throw PeerError("timeout after " + std::to_string(context.timeout.count()) +
                      " ms, waiting for " + what);
  }
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

Socket unix_socket() {
  Socket socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket) throw_errno("unix socket");
  return socket;
}

void send_descriptor(int to, const Proof& proof, int fd) {
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof fd)] = {};
  Proof copy = proof;
  iovec part{&copy, sizeof copy};
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

Socket receive_descriptor(int from, Proof& proof) {
  int fd = -1;
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof fd)] = {};
  iovec part{&proof, sizeof proof};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  const ssize_t got = recvmsg(from, &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS &&
      header->cmsg_len == CMSG_LEN(sizeof fd))
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  Socket descriptor(fd);
  if (got != sizeof proof || fd < 0)
    throw PeerError("rank 0 closed the connection without passing its shared memory");
  return descriptor;
}

Socket create_memory(std::size_t bytes) {
  Socket memory(memfd_create("engine-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) throw_errno("shared memory");
  // Reserve the memory now: if it were missing later, access would be a bus error.
  if (ftruncate(memory.fd(), static_cast<off_t>(bytes)) != 0 ||
      fallocate(memory.fd(), 0, 0, static_cast<off_t>(bytes)) != 0)
    throw_errno("shared memory of " + std::to_string(bytes) + " bytes");
  if (fcntl(memory.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    throw_errno("sealing shared memory");
  return memory;
}

Socket serve(const BackendContext& context, std::size_t bytes, Clock::time_point deadline) {
  Socket memory = create_memory(bytes);
  const Socket listener = unix_socket();
  const std::string name = "engine-shm-" + to_hex(random_bytes(16));
  const sockaddr_un address = abstract_address(name);
  if (bind(listener.fd(), reinterpret_cast<const sockaddr*>(&address), address_bytes(name)) != 0 ||
      listen(listener.fd(), context.world_size) != 0)
    throw_errno("listening on a unix socket");
  context.store.set(context.prefix + "/shm", name);
  std::vector<bool> served(static_cast<std::size_t>(context.world_size), false);
  for (int left = context.world_size - 1; left > 0;) {
    wait_readable(context, listener.fd(), deadline,
                  std::to_string(left) + " of this host's ranks to map shared memory");
    const Socket peer(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!peer && errno == EMFILE) throw_errno("passing shared memory to a rank");
    if (!peer) continue;
    Proof proof{};
    pollfd p{peer.fd(), POLLIN, 0};
    const Deadline patience = base::deadline_in(std::chrono::seconds(2));
    int arrived = 0;
    do {
      arrived = poll(&p, 1, milliseconds_left(patience));
    } while (arrived < 0 && errno == EINTR);
    if (arrived <= 0 || recv(peer.fd(), &proof, sizeof proof, 0) != sizeof proof)
      continue;  // unauthenticated
    if (proof.rank < 1 || proof.rank >= context.world_size ||
        served[static_cast<std::size_t>(proof.rank)] || !proves(context, "engine shm rank", proof))
      continue;
    send_descriptor(peer.fd(), make_proof(context, "engine shm owner", 0), memory.fd());
    served[static_cast<std::size_t>(proof.rank)] = true;
    --left;
  }
  context.store.remove(context.prefix + "/shm");
  return memory;
}

Socket fetch(const BackendContext& context, Clock::time_point deadline) {
  const std::string name = context.store.get(context.prefix + "/shm", context.timeout);
  const Socket socket = unix_socket();
  const sockaddr_un address = abstract_address(name);
  if (connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address), address_bytes(name)) != 0)
    throw_errno(
        "rank " + std::to_string(context.group_rank(0)) +
        "'s unix socket cannot be reached, although it reports this host (another container?)");
  const Proof own = make_proof(context, "engine shm rank", context.rank);
  if (send(socket.fd(), &own, sizeof own, MSG_NOSIGNAL) != sizeof own)
    throw_errno("asking for shared memory");
  wait_readable(context, socket.fd(), deadline,
                "rank " + std::to_string(context.group_rank(0)) + "'s shared memory");
  Proof theirs{};
  Socket memory = receive_descriptor(socket.fd(), theirs);
  if (theirs.rank != 0 || !proves(context, "engine shm owner", theirs))
    throw AuthenticationError("the owner of the shared memory does not know this job's secret");
  return memory;
}

}  // namespace

ShmSegment::ShmSegment(const BackendContext& context, std::size_t bytes) : bytes_(bytes) {
  const auto deadline = base::deadline_in(context.timeout);
  const Socket memory =
      context.rank == 0 ? serve(context, bytes, deadline) : fetch(context, deadline);
  void* mapped =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory.fd(), 0);
  if (mapped == MAP_FAILED)
    throw_errno("mapping shared memory of " + std::to_string(bytes) + " bytes");
  data_ = static_cast<char*>(mapped);
}

ShmSegment::~ShmSegment() { munmap(data_, bytes_); }

}  // namespace backends
