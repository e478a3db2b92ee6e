// Connects and authenticates the mesh.
#include "backends/transport/socket/mesh_setup.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "backends/backend_error.h"
#include "backends/identity/name_lookup.h"
#include "io/base/files/system_error_text.h"
#include "io/base/machine/cpu_affinity.h"
#include "io/base/time/deadline.h"

namespace backends {
namespace {

constexpr auto kLinkHandshakeTimeout = std::chrono::seconds(2);  // per accepted connection
constexpr auto kRetryTime = std::chrono::milliseconds(50);       // between attempts to connect
constexpr std::size_t kMaxUnprovenLinks = 64;  // beyond that the oldest is closed; a peer retries
constexpr int kMeshPollMs = 100;               // between checks for failures

// Enough for the data that the schedules keep in flight, and small enough for the processor's
// cache.
constexpr int kBufferBytes = 1 << 20;

// Setting a size disables the kernel's automatic growth, so it helps only if the kernel grants all
// of it.
bool set_buffers(int fd) {
  for (const int which : {SO_SNDBUF, SO_RCVBUF}) {
    int granted = kBufferBytes;
    socklen_t length = sizeof granted;
    if (setsockopt(fd, SOL_SOCKET, which, &granted, length) != 0 ||
        getsockopt(fd, SOL_SOCKET, which, &granted, &length) != 0 || granted < kBufferBytes)
      return false;
  }
  return true;
}

// Call this before connect or listen, which fix the window scale.
void prepare_buffers(int fd) {
  static const bool kGranted =
      set_buffers(Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)).fd());
  if (kGranted) set_buffers(fd);
}

std::string key(const BackendContext& context, int rank) {
  return context.prefix + "/socket/" + std::to_string(rank);
}

// Starts a non-blocking connect; returns an empty socket if it fails at once.
Socket begin_connect(const Endpoint& to) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(to.host.c_str(), std::to_string(to.port).c_str(), &hints, &found) != 0)
    throw PeerError("\"" + to_string(to) + "\" is not an address");
  Socket socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket && errno == EMFILE) {
    freeaddrinfo(found);
    throw Error("connecting to another rank: " + base::system_error_text(EMFILE));
  }
  if (socket) {
    prepare_stream(socket.fd());
    prepare_buffers(socket.fd());
    if (is_loopback(to.host)) do_not_pace(socket.fd());
    if (connect(socket.fd(), found->ai_addr, found->ai_addrlen) != 0 && errno != EINPROGRESS)
      socket.close();
  }
  freeaddrinfo(found);
  return socket;
}

}  // namespace

MeshSetup::MeshSetup(const BackendContext& context, SocketMesh& mesh)
    : context_(context),
      mesh_(mesh),
      deadline_(context.clock.deadline_in(context.timeout)),
      missing_((context.world_size - 1) * mesh.streams()) {
  mesh_.crowded_ = mesh_.on_loopback() && context.world_size > base::count_of_cpus();
}

void MeshSetup::run() {
  publish();
  look_up_peers();
  while (missing_ > 0) {
    start_due_connects();
    wait();
    sweep();
  }
  if (listener_) context_.store.remove(key(context_, context_.rank));  // all peers have read it
}

void MeshSetup::publish() {
  if (context_.rank + 1 == context_.world_size) return;  // the last rank connects to all others
  listener_ = listen_on({context_.address, 0});
  prepare_buffers(listener_.fd());  // before the port is published
  if (mesh_.on_loopback()) do_not_pace(listener_.fd());
  context_.store.set(key(context_, context_.rank), to_string(local_endpoint(listener_.fd())));
}

void MeshSetup::look_up_peers() {
  for (int peer = 0; peer < context_.rank; ++peer) {
    const auto left =
        std::max(std::chrono::ceil<std::chrono::milliseconds>(deadline_ - context_.clock.now()),
                 std::chrono::milliseconds(0));
    const Endpoint to =
        parse_endpoint(context_.store.get(key(context_, peer), left), "a rank's address");
    for (int stream = 0; stream < mesh_.streams(); ++stream) targets_.push_back({peer, stream, to});
  }
}

void MeshSetup::start_due_connects() {
  for (Target& target : targets_) {
    if (!target.connecting && base::has_passed(target.next)) start(target);
  }
}

void MeshSetup::start(Target& target) {
  target.next = base::deadline_in(kRetryTime);
  Attempt attempt;
  attempt.socket = begin_connect(target.to);
  if (!attempt.socket) return;
  attempt.outgoing = true;
  attempt.stage = Stage::kConnecting;
  attempt.hello = make_hello(context_.rank, target.peer, target.stream, mesh_.streams(),
                             target.to.port, context_.cipher);
  attempt.until = deadline_;
  target.connecting = true;
  attempts_.push_back(std::move(attempt));
}

void MeshSetup::wait() {
  std::vector<pollfd> polled;
  for (const Attempt& a : attempts_) {
    polled.push_back(
        {a.socket.fd(), static_cast<short>(a.stage == Stage::kConnecting ? POLLOUT : POLLIN), 0});
  }
  if (listener_) polled.push_back({listener_.fd(), POLLIN, 0});
  const bool retrying =
      std::ranges::any_of(targets_, [](const Target& e) { return !e.connecting; });
  const int most = retrying ? static_cast<int>(kRetryTime.count()) : kMeshPollMs;
  const int ready =
      poll(polled.data(), polled.size(), std::min(most, context_.clock.poll_ms(deadline_)));
  if (const auto failure = context_.watch.known_failure(std::chrono::milliseconds(0)))
    failure->raise();
  if (context_.clock.has_passed(deadline_)) throw_timeout();
  if (ready <= 0) return;
  for (std::size_t i = 0; i < attempts_.size(); ++i) {
    if (polled[i].revents != 0) serve(attempts_[i]);
  }
  if (listener_ && polled.back().revents != 0) accept_all();
}

void MeshSetup::accept_all() {
  for (std::size_t i = 0; i < kMaxUnprovenLinks; ++i) {
    Socket socket(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket && errno == EMFILE)
      throw Error("accepting the connection of another rank: " + base::system_error_text(EMFILE));
    if (!socket) return;
    prepare_stream(socket.fd());
    Attempt attempt;
    attempt.socket = std::move(socket);
    attempt.until = context_.clock.deadline_in(kLinkHandshakeTimeout);
    attempts_.push_back(std::move(attempt));
  }
}

void MeshSetup::keep(Attempt& attempt, int peer, std::uint32_t machine) {
  if (machine == machine_digest()) do_not_pace(attempt.socket.fd());
  const std::size_t at = mesh_.index(peer, attempt.hello.stream);
  Socket& place = mesh_.sockets_[at];
  if (!place) --missing_;
  place = std::move(attempt.socket);  // on a second connection of the same peer: the peer has
                                      // abandoned the first
  mesh_.links_[at] = std::make_unique<RecordStream>(
      place.fd(), (attempt.outgoing ? connector_keys : acceptor_keys)(
                      context_.secret, context_.prefix, attempt.hello, attempt.challenge));
  attempt.stage = Stage::kDone;
}

// REQUIRES: this rank made the connection.
MeshSetup::Target& MeshSetup::target_of(const Attempt& attempt) {
  return *std::ranges::find_if(targets_, [&](const Target& target) {
    return target.peer == attempt.hello.to && target.stream == attempt.hello.stream;
  });
}

// Removes attempts that are done, failed or too late.
void MeshSetup::sweep() {
  const auto now = context_.clock.now();
  std::size_t unproven = 0;
  for (auto a = attempts_.rbegin(); a != attempts_.rend(); ++a) {  // the newest first
    const bool waits = a->stage != Stage::kDone && a->stage != Stage::kFailed;
    if (waits && !a->outgoing &&
        (now >= a->until || (a->stage != Stage::kEstablishing && ++unproven > kMaxUnprovenLinks)))
      a->stage = Stage::kFailed;
    if (a->stage == Stage::kFailed && a->outgoing) target_of(*a).connecting = false;
  }
  std::erase_if(attempts_, [](const Attempt& a) {
    return a.stage == Stage::kDone || a.stage == Stage::kFailed;
  });
}

void MeshSetup::throw_timeout() {
  std::string names;
  for (int peer = 0; peer < context_.world_size; ++peer) {
    if (peer == context_.rank) continue;
    for (int stream = 0; stream < mesh_.streams(); ++stream) {
      if (mesh_.sockets_[mesh_.index(peer, stream)]) continue;
      names += (names.empty() ? "" : ", ") + std::to_string(context_.group_rank(peer));
      break;
    }
  }
  const auto unanswered = std::ranges::find_if(
      attempts_, [](const Attempt& a) { return a.outgoing && a.stage == Stage::kConnecting; });
  std::string hint;
  if (unanswered != attempts_.end())
    hint = "; no answer from " + to_string(target_of(*unanswered).to) +
           ": a firewall must let ranks connect to all ports of each other, not only to rank 0's";
  throw PeerError("timeout after " + std::to_string(context_.timeout.count()) +
                  " ms, no connection with rank " + names + hint);
}

}  // namespace backends
