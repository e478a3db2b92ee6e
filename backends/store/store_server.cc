// The server's loop, its door and the handshake.
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

namespace backends {
namespace {

constexpr std::size_t kHalfOpenConnections = 64;
constexpr auto kHelloTime = std::chrono::seconds(5);
constexpr auto kLinger = std::chrono::seconds(2);

}  // namespace

StoreServer::StoreServer(StoreServerOptions options)
    : options_(std::move(options)),
      endpoint_(local_endpoint(options_.listener.fd())),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      members_(static_cast<std::size_t>(options_.job.world_size), nullptr) {
  if (!wake_)
    throw PeerError(std::string("cannot make an event descriptor: ") + std::strerror(errno));
  fcntl(options_.listener.fd(), F_SETFL, fcntl(options_.listener.fd(), F_GETFL) | O_NONBLOCK);
  fcntl(options_.listener.fd(), F_SETFD, FD_CLOEXEC);
  last_turn_ = next_beat_ = Clock::now();
  thread_ = std::thread([this] { run(); });
}

StoreServer::~StoreServer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    stop_deadline_ = Clock::now() + kLinger;
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
      write(wake_.fd(), &one, sizeof one);  // a full counter wakes as well
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
      if (stopping_ &&
          ((empty && awaited_.empty() && !awaits_absent()) || Clock::now() >= stop_deadline_)) {
        // Members that still work learn that rank 0 went in peace.
        if (started_ && !failed_ && !parted_) broadcast(FrameWriter(FrameType::kLeft).finish());
        return;
      }
    }
    polled.assign({{wake_.fd(), POLLIN, 0},
                   {options_.listener.fd(),
                    static_cast<short>(Clock::now() >= accept_again_ ? POLLIN : 0), 0}});
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
    beat(now);
    last_turn_ = now;
  }
}

int StoreServer::poll_timeout() const {
  Deadline next = next_beat_;
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
        accept_again_ = Clock::now() + std::chrono::milliseconds(100);
      }
      return;
    }
    prepare_stream(socket.fd());
    const auto stranger = [](const Connection& c) { return !c.is_member() && c.alive(); };
    if (static_cast<std::size_t>(std::count_if(connections_.begin(), connections_.end(),
                                               stranger)) >= kHalfOpenConnections) {
      // The oldest goes: a member needs milliseconds, whoever idles here is none.
      std::find_if(connections_.begin(), connections_.end(), stranger)->end = "crowded out";
    }
    Connection& c = connections_.emplace_back();
    c.socket = std::move(socket);
    c.last_heard = Clock::now();
    c.hello_deadline = c.last_heard + kHelloTime;
  }
}

void StoreServer::read_from(Connection& c) {
  if (!c.alive()) return;
  c.receive();
  try {
    while (!c.close_after_flush) {
      const std::optional<Frame> frame = c.parser.next(c.longest_frame());
      if (!frame) break;
      handle(c, *frame);
    }
    if (c.close_after_flush) c.parser = {};
  } catch (const MalformedFrame&) {
    c.end = "it violated the protocol";
  }
}

void StoreServer::handle(Connection& c, const Frame& frame) {
  switch (c.stage) {
    case Connection::Stage::kHello:
      return greet(c, frame);
    case Connection::Stage::kProof:
      return admit(c, frame);
    case Connection::Stage::kSettings:
      return take_settings(c, frame);
    case Connection::Stage::kMember:
      return handle_member(c, frame);
  }
}

void StoreServer::greet(Connection& c, const Frame& frame) {
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

void StoreServer::admit(Connection& c, const Frame& frame) {
  const std::string proof = client_proof(options_.secret, c.hello_payload, c.server_nonce);
  if (frame.type != FrameType::kProof) throw MalformedFrame();
  if (!equal_in_constant_time(frame.payload, proof)) {
    return refuse(c, RefusalKind::kAuthentication,
                  "a process that calls itself rank " + std::to_string(c.hello.rank) + " at " +
                      peer_text(c.socket.fd()) + " does not have the secret of this job");
  }
  if (is_superseded(c.hello)) {
    c.end = "a later connection of its process has come";
    return;
  }
  judge(c);
}

void StoreServer::take_settings(Connection& c, const Frame& frame) {
  if (frame.type != FrameType::kSettings) throw MalformedFrame();
  c.hello.settings = read_settings(frame.payload);
  if (settings_digest(c.hello.settings) != c.hello.settings_digest) throw MalformedFrame();
  judge(c);
}

void StoreServer::judge(Connection& c) {
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
    // Whoever has the secret and contradicts us is part of this job as the user sees it: nothing
    // can come of it.
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
  welcome(c);
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
  bool repeated = false;  // another job that looks for its own rank 0 knocks again and again
  {
    const std::lock_guard lock(mutex_);
    repeated = kind == RefusalKind::kOtherJob && text == last_refusal_;
    last_refusal_ = text;
  }
  if (!repeated && options_.notice && Clock::now() >= next_refusal_notice_) {
    next_refusal_notice_ = Clock::now() + std::chrono::seconds(1);
    options_.notice("refused a connection: " + text);
  }
}

}  // namespace backends
