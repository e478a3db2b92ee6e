// Meeting: rank 0 opens the store, every rank connects and waits for the others.
#include "backends/rendezvous/join.h"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "backends/backend_error.h"
#include "backends/rendezvous/host_identity.h"
#include "backends/rendezvous/identity.h"

namespace backends {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kNoticeEvery = std::chrono::seconds(5);
constexpr auto kFirstPause = std::chrono::milliseconds(20), kLongestPause = std::chrono::milliseconds(500);

std::string seconds_text(Clock::duration d) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(d).count());
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i == 16) return text + ", ...";
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

class Joiner {
 public:
  explicit Joiner(const GroupOptions& options)
      : options_(options),
        start_(Clock::now()),
        deadline_(start_ + std::chrono::milliseconds(options.rendezvous_timeout_ms)),
        next_notice_(start_ + kNoticeEvery) {
    hello_.rank = options.rank;
    hello_.world_size = options.world_size;
    hello_.pid = getpid();
    hello_.job = options.job_id;
    hello_.build = options.build_id;
    hello_.config_digest = options.config_digest;
    hello_.host = host_name().substr(0, kIdentityTextBytes);
    hello_.host_id = (options.host_id.empty() ? host_id() : options.host_id).substr(0, kIdentityTextBytes);
    std::string method = options.init_method;
    if (method.empty() || method == "env://")
      method = resolve_identity({"env://", options.rank, options.world_size, {}}, process_environment()).init_method;
    if (method.rfind("file://", 0) == 0) {
      path_ = method.substr(7);
    } else if (method.rfind("tcp://", 0) == 0) {
      endpoint_ = parse_endpoint(std::string_view(method).substr(6), "init method");
    } else {
      throw ConfigurationError("init method \"" + method + "\": expected env://, tcp://HOST:PORT or file:///PATH");
    }
  }

  JoinedStore join() {
    if (path_.empty()) secret_ = load_secret(options_.secret, "");
    if (options_.rank == 0) open_server();
    for (;;) {
      connect();
      if (wait_for_all()) break;
      joined_.store.reset();  // rank 0 went away before the start: it may come again
    }
    joined_.address = reachable_address();
    joined_.secret = secret_;
    joined_.meeting_place = to_string(endpoint_);
    return std::move(joined_);
  }

 private:
  void open_server() {
    const int fd = options_.listen_fd;
    Meeting meeting;
    if (!path_.empty()) {
      meeting.secret_hex = to_hex(random_bytes(32));
      meeting.nonce = to_hex(random_bytes(8));
      secret_ = load_secret(options_.secret, meeting.secret_hex);
    }
    StoreServerOptions server;
    server.listener = fd >= 0 ? Socket(fd) : listen_on(listen_endpoint());
    server.secret = secret_;
    server.heartbeat_ms = options_.heartbeat_ms;
    server.notice = options_.notice;
    endpoint_ = local_endpoint(server.listener.fd());
    if (!path_.empty()) {
      const std::string job = hello_.job;
      hello_.job += "/" + meeting.nonce;
      meeting.endpoint = endpoint_;
      meeting.pid = hello_.pid;
      meeting.start_time = process_start_time(hello_.pid);
      meeting.host = hello_.host;
      meeting.host_id = hello_.host_id;
      const auto answers = [&](const Meeting& old) {
        Hello probe = hello_;
        probe.job = job + "/" + old.nonce;
        return server_answers(old.endpoint, load_secret(options_.secret, old.secret_hex), probe,
                              Clock::now() + std::chrono::seconds(2));
      };
      joined_.file = std::make_unique<MeetingFile>(path_, meeting, answers, options_.notice);
    }
    server.job = hello_;
    joined_.server = std::make_unique<StoreServer>(std::move(server));
  }

  Endpoint listen_endpoint() const {
    if (!options_.interface.empty()) return {interface_address(options_.interface), path_.empty() ? endpoint_.port : 0};
    if (path_.empty()) return endpoint_;
    return {options_.local_world_size == options_.world_size ? "127.0.0.1" : default_address(), 0};
  }

  // Tries until rank 0 lets this rank in.
  void connect() {
    auto pause = kFirstPause;
    std::string reason;
    for (;;) {
      if (std::optional<StoreSession> session = attempt(reason)) {
        joined_.store = std::make_shared<TcpStore>(
            std::move(*session), StoreClientOptions{options_.rank, options_.heartbeat_ms, to_string(endpoint_)});
        return;
      }
      const std::string where = path_.empty() ? "at " + to_string(endpoint_) : "by " + path_;
      if (Clock::now() >= deadline_) {
        throw PeerError("no rendezvous after " + seconds_text(Clock::now() - start_) + " s: rank 0 did not come " + where +
                        " (" + reason + ")");
      }
      notice_when_due("waiting for rank 0 " + where + ": " + reason);
      std::this_thread::sleep_for(
          std::min<Clock::duration>(pause, std::max<Clock::duration>(deadline_ - Clock::now(), Clock::duration::zero())));
      pause = std::min(pause * 2, kLongestPause);
    }
  }

  std::optional<StoreSession> attempt(std::string& reason) {
    if (options_.rank == 0 || path_.empty()) return open_session(endpoint_, secret_, hello_, deadline_, false, reason);
    const std::optional<Meeting> meeting = read_meeting(path_, reason);
    if (!meeting) return std::nullopt;
    if (is_certainly_dead(*meeting)) {
      reason = "the file is a leftover of a run that is gone";
      return std::nullopt;
    }
    endpoint_ = meeting->endpoint;
    const bool own_secret = !options_.secret.empty() || secret_comes_from_environment();
    Hello hello = hello_;
    hello.job += "/" + meeting->nonce;
    secret_ = load_secret(options_.secret, meeting->secret_hex);
    return open_session(endpoint_, secret_, hello,
                        std::min(deadline_, Clock::now() + std::chrono::seconds(3)), !own_secret, reason);
  }

  // True when the group has started, false when the connection was lost before.
  bool wait_for_all() {
    for (;;) {
      switch (joined_.store->wait_for_start(std::min(deadline_, next_notice_))) {
        case TcpStore::Meeting::kStarted:
          return true;
        case TcpStore::Meeting::kLost:
          return false;
        case TcpStore::Meeting::kWaiting:
          break;
      }
      const std::vector<int> missing = joined_.store->missing();
      const std::string who =
          std::to_string(missing.size()) + " of " + std::to_string(options_.world_size) + " ranks: " + ranks_text(missing);
      if (Clock::now() >= deadline_) {
        std::string text = "no rendezvous after " + seconds_text(Clock::now() - start_) + " s: missing " + who;
        if (joined_.server) {
          if (const std::string refused = joined_.server->last_refusal(); !refused.empty())
            text += " (refused: " + refused + ")";
          joined_.server->give_up(RefusalKind::kPeer, text);
        }
        throw PeerError(text);
      }
      notice_when_due("waiting for " + who);
    }
  }

  void notice_when_due(const std::string& text) {
    const auto now = Clock::now();
    if (now < next_notice_) return;
    next_notice_ += kNoticeEvery;
    if (options_.notice)
      options_.notice(text + " (" + seconds_text(now - start_) + " s of " +
                      std::to_string(options_.rendezvous_timeout_ms / 1000) + " s)");
  }

  std::string reachable_address() const {
    if (!options_.interface.empty()) return interface_address(options_.interface);
    if (joined_.store->one_host()) return "127.0.0.1";
    return joined_.store->local_address();
  }

  const GroupOptions& options_;
  const Clock::time_point start_;
  const Deadline deadline_;
  Clock::time_point next_notice_;
  Hello hello_;
  Secret secret_;
  std::string path_;   // of file://, else empty
  Endpoint endpoint_;  // of rank 0's store
  JoinedStore joined_;
};

}  // namespace

JoinedStore join_store(const GroupOptions& options) { return Joiner(options).join(); }

}  // namespace backends
