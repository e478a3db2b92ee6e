// The server's loop, accepting and authenticating connections.
#include "backends/store/store_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "backends/backend_error.h"
#include "backends/open_files.h"
#include "backends/store/handshake.h"
#include "io/base/deadline.h"

namespace backends {
namespace {

constexpr std::size_t kMaxUnauthenticated = 64;
constexpr auto kLinger = std::chrono::seconds(2);

}  // namespace

StoreServer::StoreServer(StoreServerOptions options)
    : options_(std::move(options)),
      endpoint_(local_endpoint(options_.listener.fd())),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      members_(static_cast<std::size_t>(options_.job.world_size), nullptr),
      stall_watch_(std::chrono::milliseconds(options_.stall_after_ms)) {
  if (!wake_) throw PeerError("cannot make an event descriptor: " + system_error_text(errno));
  fcntl(options_.listener.fd(), F_SETFL, fcntl(options_.listener.fd(), F_GETFL) | O_NONBLOCK);
  fcntl(options_.listener.fd(), F_SETFD, FD_CLOEXEC);
  last_turn_ = next_heartbeat_ = Clock::now();
  thread_ = std::thread([this] { run(); });
}

StoreServer::~StoreServer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    stop_deadline_ = base::deadline_in(kLinger);
  }
  wake();
  thread_.join();
}

void StoreServer::give_up(RefusalKind kind, const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    give_up_.emplace(kind, text);
  }
  wake();
}

std::string StoreServer::last_refusal() const {
  const std::lock_guard lock(mutex_);
  return last_refusal_;
}

void StoreServer::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n =
      write(wake_.fd(), &one, sizeof one);  // a full counter wakes it too
}

void StoreServer::run() {
  std::vector<pollfd> polled;
  std::vector<Connection*> order;
  for (;;) {
    take_commands();
    {
      const std::lock_guard lock(mutex_);
      const bool empty = std::none_of(connections_.begin(), connections_.end(),
                                      [](const Connection& c) { return c.is_member(); });
      if (stopping_ && ((empty && awaited_.empty() && !awaits_reconnection()) ||
                        base::has_passed(stop_deadline_))) {
        // Tell members that still run that rank 0 has left in order.
        if (started_ && !failed_ && !all_left_) broadcast(FrameWriter(FrameType::kLeft).finish());
        return;
      }
    }
    polled.assign({{wake_.fd(), POLLIN, 0},
                   {options_.listener.fd(),
                    static_cast<short>(base::has_passed(accept_again_) ? POLLIN : 0), 0}});
    order.clear();
    for (Connection& c : connections_) {
      polled.push_back(
          {c.socket.fd(), static_cast<short>(c.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
      order.push_back(&c);
    }
    if (poll(polled.data(), polled.size(), poll_timeout()) > 0) {
      std::uint64_t drained;
      if (polled[0].revents != 0) [[maybe_unused]]
        const ssize_t n = read(wake_.fd(), &drained, sizeof drained);
      for (std::size_t i = 0; i < order.size(); ++i) {
        if ((polled[i + 2].revents & POLLOUT) != 0) order[i]->flush();
        if ((polled[i + 2].revents & ~POLLOUT) != 0) read_from(*order[i]);
      }
      if (polled[1].revents != 0) accept_all();
    }
    const auto now = Clock::now();
    sweep(now);
    send_heartbeat(now);
    check_stall(now);
    last_turn_ = now;
  }
}

int StoreServer::poll_timeout() const {
  Deadline next = next_heartbeat_;
  for (const Connection& c : connections_) {
    if (!c.is_member()) next = std::min(next, c.hello_deadline);
  }
  return milliseconds_left(next, 250);
}

void StoreServer::take_commands() {
  std::optional<std::pair<RefusalKind, std::string>> order;
  {
    const std::lock_guard lock(mutex_);
    order.swap(give_up_);
  }
  if (order) fail_group(order->first, order->second);
}

void StoreServer::accept_all() {
  for (int i = 0; i < 64; ++i) {
    Socket socket(accept4(options_.listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        accept_again_ = base::deadline_in(std::chrono::milliseconds(100));
        if (!reported_shortage_ && options_.notice)
          options_.notice("cannot accept a connection: " + system_error_text(errno) +
                          "; trying again");
        reported_shortage_ = true;
      }
      return;
    }
    prepare_stream(socket.fd());
    const auto unauthenticated = [](const Connection& c) { return !c.is_member() && c.alive(); };
    if (static_cast<std::size_t>(std::count_if(connections_.begin(), connections_.end(),
                                               unauthenticated)) >= kMaxUnauthenticated) {
      // Close the oldest: a rank authenticates within milliseconds.
      std::find_if(connections_.begin(), connections_.end(), unauthenticated)->end =
          "too many unauthenticated connections";
    }
    Connection& c = connections_.emplace_back();
    c.socket = std::move(socket);
    c.last_received = Clock::now();
    c.hello_deadline = c.last_received + kHandshakeTimeout;
  }
}

void StoreServer::read_from(Connection& c) {
  if (!c.alive()) return;
  c.receive();
  try {
    while (!c.close_after_flush) {
      std::optional<Frame> frame = c.parser.next(c.longest_frame());
      if (!frame) break;
      c.seals.to_server.open(*frame);
      handle(c, *frame);
    }
    if (c.close_after_flush) c.parser = {};
  } catch (const MalformedFrame&) {
    c.end = "its connection carried a frame that is damaged or forged";
  }
}

void StoreServer::handle(Connection& c, const Frame& frame) {
  switch (c.stage) {
    case Connection::Stage::kHello:
      return on_hello(c, frame);
    case Connection::Stage::kProof:
      return on_proof(c, frame);
    case Connection::Stage::kSettings:
      return on_settings(c, frame);
    case Connection::Stage::kMember:
      return handle_member(c, frame);
  }
}

void StoreServer::on_hello(Connection& c, const Frame& frame) {
  if (frame.type != FrameType::kHello) throw MalformedFrame();
  c.hello = read_hello(frame.payload);
  if (c.hello.version != options_.job.version) {
    return refuse(c, RefusalKind::kMismatch,
                  "protocol version " + std::to_string(options_.job.version) + " on rank 0 and " +
                      std::to_string(c.hello.version) + " at " + peer_text(c.socket.fd()));
  }
  c.hello_payload = frame.payload;
  c.server_nonce = random_bytes(kNonceBytes);
  c.stage = Connection::Stage::kProof;
  c.send(FrameWriter(FrameType::kChallenge)
             .bytes(c.server_nonce)
             .bytes(server_proof(options_.secret, c.hello_payload, c.server_nonce))
             .finish());
}

void StoreServer::on_proof(Connection& c, const Frame& frame) {
  const std::string proof = client_proof(options_.secret, c.hello_payload, c.server_nonce);
  if (frame.type != FrameType::kProof) throw MalformedFrame();
  if (!equal_in_constant_time(frame.payload, proof)) {
    return refuse(c, RefusalKind::kAuthentication,
                  "a process that calls itself rank " + std::to_string(c.hello.rank) + " at " +
                      peer_text(c.socket.fd()) + " does not have the secret of this job");
  }
  c.seals = make_seals(options_.secret, c.hello_payload, c.server_nonce);
  if (is_superseded(c.hello)) {
    c.end = "its process has connected again";
    return;
  }
  decide(c);
}

void StoreServer::on_settings(Connection& c, const Frame& frame) {
  if (frame.type != FrameType::kSettings) throw MalformedFrame();
  c.hello.settings = read_settings(frame.payload);
  if (settings_digest(c.hello.settings) != c.hello.settings_digest) throw MalformedFrame();
  decide(c);
}

void StoreServer::decide(Connection& c) {
  const Hello &job = options_.job, &h = c.hello;
  RefusalKind kind{};
  std::string text = disagreement(h, kind);
  const bool same_settings = h.settings_digest == job.settings_digest;
  if (text.empty() && same_settings) text = disagreement_on_rank(h, kind);
  // A group that was given up has its reason, which all ranks are told.
  if (text.empty() && !same_settings && fatal_frame_.empty()) {
    if (c.stage == Connection::Stage::kProof) {
      c.stage = Connection::Stage::kSettings;
      return c.send(FrameWriter(FrameType::kAskSettings).finish());
    }
    text = settings_difference(job.settings, member_text(0, job.host, job.pid), h.settings,
                               member_text(h.rank, h.host, h.pid));
  }
  if (!text.empty()) {
    refuse(c, kind, text);
    // A rank with the secret and a contradicting configuration belongs to this job: the group
    // cannot form.
    if (kind == RefusalKind::kMismatch && !started_) fail_group(kind, text);
    awaited_.erase(c.hello.rank);
    return;
  }
  if (!fatal_frame_.empty()) {
    c.send(fatal_frame_);
    c.close_after_flush = true;
    c.flush();
    awaited_.erase(c.hello.rank);
    return;
  }
  add_member(c);
}

std::string StoreServer::disagreement(const Hello& h, RefusalKind& kind) const {
  const Hello& job = options_.job;
  const std::string who = member_text(h.rank, h.host, h.pid),
                    here = member_text(0, job.host, job.pid);
  const auto differ = [&](const char* what, const std::string& ours, const std::string& theirs) {
    return std::string(what) + " differs: \"" + ours + "\" on " + here + ", \"" + theirs +
           "\" on " + who;
  };
  kind = RefusalKind::kOtherJob;
  if (h.job != job.job) return differ("job id", job.job, h.job);
  if (h.port != 0 && h.port != endpoint_.port)
    return who + " was relayed from port " + std::to_string(h.port) + " to port " +
           std::to_string(endpoint_.port) + " of " + here + " by a process that is not of this job";
  kind = RefusalKind::kMismatch;
  if (h.world_size != job.world_size)
    return differ("world size", std::to_string(job.world_size), std::to_string(h.world_size));
  if (h.rank < 0 || h.rank >= job.world_size)
    return "rank " + std::to_string(h.rank) + " is outside a world of " +
           std::to_string(job.world_size);
  if (h.build != job.build) return differ("engine build", job.build, h.build);
  return "";
}

void StoreServer::refuse(Connection& c, RefusalKind kind, const std::string& text) {
  c.send(refusal_frame(FrameType::kRefuse, kind, text));
  c.close_after_flush = true;
  c.flush();
  bool repeated = false;  // another job that searches for its own rank 0 connects repeatedly
  {
    const std::lock_guard lock(mutex_);
    repeated = kind == RefusalKind::kOtherJob && text == last_refusal_;
    last_refusal_ = text;
  }
  if (!repeated && options_.notice && base::has_passed(next_refusal_notice_)) {
    next_refusal_notice_ = base::deadline_in(std::chrono::seconds(1));
    options_.notice("refused a connection: " + text);
  }
}

}  // namespace backends
