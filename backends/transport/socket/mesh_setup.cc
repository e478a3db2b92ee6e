// Connects and authenticates the mesh.
#include "backends/transport/socket/mesh_setup.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "backends/backend_error.h"
#include "backends/identity/name_lookup.h"
#include "backends/relay/relay_route.h"
#include "io/base/files/system_error_text.h"
#include "io/base/machine/cpu_affinity.h"
#include "io/base/time/deadline.h"

namespace backends {
namespace {

constexpr auto kLinkHandshakeTimeout = std::chrono::seconds(2);  // per accepted connection
constexpr auto kRetryTime = std::chrono::milliseconds(50);       // between attempts to connect
constexpr auto kRelayRetryTime = std::chrono::milliseconds(200);
constexpr std::size_t kMaxUnprovenLinks = 64;  // beyond that the oldest is closed; a peer retries
constexpr int kMeshPollMs = 100;               // between checks for failures
constexpr auto kDirectTime = std::chrono::seconds(2);  // before the relay is used as well

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

// Starts a non-blocking connect; returns an empty socket if it fails at once, with errno.
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
    if (::connect(socket.fd(), found->ai_addr, found->ai_addrlen) != 0 && errno != EINPROGRESS) {
      const int error = errno;
      socket.close();
      errno = error;
    }
  }
  const int error = errno;
  freeaddrinfo(found);
  errno = error;
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
    for (Target& target : targets_) connect(target);
    wait();
    sweep();
  }
  if (context_.relay != nullptr) report_links();
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
  const bool with_relay = context_.relay != nullptr;
  for (int peer = 0; peer < context_.world_size; ++peer) {
    const bool connects = peer < context_.rank;
    if (peer == context_.rank || (!connects && !with_relay)) continue;
    Target target{.peer = peer, .stream = 0, .connects = connects, .to = {}};
    if (connects) {
      const auto left =
          std::max(std::chrono::ceil<std::chrono::milliseconds>(deadline_ - context_.clock.now()),
                   std::chrono::milliseconds(0));
      target.to = parse_endpoint(context_.store.get(key(context_, peer), left), "a rank's address");
    }
    for (; target.stream < mesh_.streams(); ++target.stream) targets_.push_back(target);
  }
  if (!with_relay) return;
  const Deadline later = base::deadline_in(kDirectTime);
  for (Target& target : targets_) {
    if (!context_.relay->was_relayed(context_.group_rank(target.peer))) target.relay_from = later;
  }
}

void MeshSetup::connect(Target& target) {
  if (target.done) return;
  if (target.connects && !target.has_direct && base::has_passed(target.next_direct))
    connect_directly(target);
  if (context_.relay != nullptr && !target.has_relayed && base::has_passed(target.relay_from) &&
      base::has_passed(target.next_relayed))
    connect_to_relay(target);
}

void MeshSetup::connect_directly(Target& target) {
  target.next_direct = base::deadline_in(kRetryTime);
  Attempt attempt;
  attempt.socket = begin_connect(target.to);
  if (!attempt.socket) {
    target.error = errno;
    return;
  }
  attempt.outgoing = true;
  attempt.target = &target;
  attempt.stage = Stage::kConnecting;
  attempt.until = deadline_;
  target.has_direct = true;
  attempts_.push_back(std::move(attempt));
}

void MeshSetup::connect_to_relay(Target& target) {
  target.next_relayed = base::deadline_in(kRelayRetryTime);
  Attempt attempt;
  attempt.socket = begin_connect(context_.relay->relay());
  if (!attempt.socket) return;
  const int lower = std::min(target.peer, context_.rank);
  const int higher = std::max(target.peer, context_.rank);
  attempt.relay_hello =
      make_relay_hello(target.connects ? RelayEnd::kConnector : RelayEnd::kAcceptor,
                       context_.group_rank(context_.rank), context_.group_rank(target.peer),
                       relay_pair(context_.secret, {context_.prefix, lower, higher, target.stream}),
                       context_.relay->job());
  attempt.outgoing = target.connects;
  attempt.relayed = true;
  attempt.target = &target;
  attempt.stage = Stage::kRelayConnecting;
  attempt.until = context_.clock.deadline_in(kRelayHandshakeTimeout);
  target.has_relayed = true;
  attempts_.push_back(std::move(attempt));
}

void MeshSetup::wait() {
  std::vector<pollfd> polled;
  for (const Attempt& a : attempts_) {
    const bool opens = a.stage == Stage::kConnecting || a.stage == Stage::kRelayConnecting;
    polled.push_back({a.socket.fd(), static_cast<short>(opens ? POLLOUT : POLLIN), 0});
  }
  if (listener_) polled.push_back({listener_.fd(), POLLIN, 0});
  const bool retrying =
      std::ranges::any_of(targets_, [](const Target& e) { return e.connects && !e.has_direct; });
  const int most = retrying ? static_cast<int>(kRetryTime.count()) : kMeshPollMs;
  const int ready =
      poll(polled.data(), polled.size(), std::min(most, context_.clock.poll_ms(deadline_)));
  if (const auto failure = context_.watch.known_failure(std::chrono::milliseconds(0)))
    failure->raise();
  if (context_.clock.has_passed(deadline_)) throw_timeout();
  if (ready <= 0) return;
  for (std::size_t i = 0; i < attempts_.size(); ++i) {
    if (polled[i].revents != 0 && attempts_[i].stage != Stage::kFailed) serve(attempts_[i]);
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
  if (machine == machine_digest() && !attempt.relayed) do_not_pace(attempt.socket.fd());
  if (context_.relay != nullptr) keep_alive(attempt.socket.fd());  // routers forget idle ones
  const std::size_t at = mesh_.index(peer, attempt.hello.stream);
  Socket& place = mesh_.sockets_[at];
  if (!place) --missing_;
  place = std::move(attempt.socket);  // on a second connection of the same peer: the peer has
                                      // abandoned the first
  mesh_.links_[at] = std::make_unique<RecordStream>(
      place.fd(), (attempt.outgoing ? connector_keys : acceptor_keys)(
                      context_.secret, context_.prefix, attempt.hello, attempt.challenge));
  attempt.stage = Stage::kDone;
  if (attempt.relayed) {
    relayed_.insert(peer);
    context_.relay->note_relayed(context_.group_rank(peer));
  }
  const auto target = std::ranges::find_if(targets_, [&](const Target& t) {
    return t.peer == peer && t.stream == attempt.hello.stream;
  });
  if (target == targets_.end()) return;  // the lower rank, without a relay
  target->done = true;
  cancel_others(*target);
}

void MeshSetup::cancel_others(const Target& target) {
  for (Attempt& attempt : attempts_) {
    if (attempt.target == &target && attempt.stage != Stage::kDone) attempt.stage = Stage::kFailed;
  }
}

// Removes attempts that are done, failed or too late.
void MeshSetup::sweep() {
  const auto now = context_.clock.now();
  std::size_t unproven = 0;
  for (auto a = attempts_.rbegin(); a != attempts_.rend(); ++a) {  // the newest first
    const bool waits = a->stage != Stage::kDone && a->stage != Stage::kFailed;
    const bool accepted = a->target == nullptr;
    if (waits && now >= a->until) a->stage = Stage::kFailed;
    if (waits && accepted && a->stage != Stage::kEstablishing && ++unproven > kMaxUnprovenLinks)
      a->stage = Stage::kFailed;
    if (a->stage == Stage::kFailed && !accepted)
      (a->relayed ? a->target->has_relayed : a->target->has_direct) = false;
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
  throw PeerError("timeout after " + std::to_string(context_.timeout.count()) +
                  " ms, no connection with rank " + names + timeout_hint());
}

std::string MeshSetup::timeout_hint() const {
  const auto at = [&](Stage stage) {
    return std::ranges::find_if(attempts_, [=](const Attempt& a) { return a.stage == stage; });
  };
  if (context_.relay != nullptr) {
    const std::string relay = "the relay at " + to_string(context_.relay->relay());
    if (at(Stage::kRelayWaiting) != attempts_.end())
      return "; " + relay + " has waited for the other end: do all ranks reach it?";
    if (relayed_.empty()) return "; no answer from " + relay;
    return "";
  }
  constexpr const char* kRule =
      ": a firewall must let ranks connect to all ports of each other, not only to rank 0's; "
      "where none can, give all ranks --relay rank0:PORT";
  if (const auto silent = at(Stage::kConnecting); silent != attempts_.end())
    return "; no answer from " + to_string(silent->target->to) + kRule;
  const auto failed =
      std::ranges::find_if(targets_, [](const Target& t) { return !t.done && t.error != 0; });
  if (failed != targets_.end())
    return "; " + to_string(failed->to) + ": " + std::strerror(failed->error) + kRule;
  if (listener_ && !mesh_.on_loopback())
    return "; if they cannot connect to " + context_.address +
           ", give all ranks --relay rank0:PORT";
  return "";
}

// Tells the user of rank 0 how the pairs are connected. Collective.
void MeshSetup::report_links() {
  const auto key_of = [&](int rank) { return key(context_, rank) + "/relayed"; };
  if (context_.rank != 0) {
    std::string lower;
    for (const int peer : relayed_) {
      if (peer < context_.rank) lower += std::to_string(peer) + " ";
    }
    return context_.store.set(key_of(context_.rank), lower);
  }
  std::set<std::pair<int, int>> pairs;
  for (int rank = 1; rank < context_.world_size; ++rank) {
    std::istringstream in(context_.store.get(key_of(rank), context_.timeout));
    context_.store.remove(key_of(rank));
    for (int peer = 0; in >> peer;)
      pairs.emplace(context_.group_rank(peer), context_.group_rank(rank));
  }
  const std::string text = links_text(context_.world_size, pairs, context_.relay->relay());
  if (context_.group_rank(0) == 0 && context_.notice &&
      context_.relay->is_new_report(context_.world_size, text))
    context_.notice(text);
}

}  // namespace backends
