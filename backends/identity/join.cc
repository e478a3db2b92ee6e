// Implements the rendezvous: rank 0 opens the store, every rank connects and waits for the others.
#include "backends/identity/join.h"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "backends/backend_error.h"
#include "backends/identity/host_identity.h"
#include "backends/identity/identity.h"
#include "backends/identity/name_lookup.h"
#include "backends/identity/port_scan.h"
#include "backends/open_files.h"
#include "backends/store/private_files.h"
#include "io/base/time/deadline.h"

namespace backends {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kNoticeEvery = std::chrono::seconds(5);
constexpr auto kPollInterval =
    std::chrono::milliseconds(100);  // between calls of options.cancelled()
constexpr auto kFileCheckInterval = std::chrono::seconds(1);
constexpr auto kFirstPause = std::chrono::milliseconds(20),
               kLongestPause = std::chrono::milliseconds(500);

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

bool is_one_host(const std::vector<PeerInfo>& peers) {
  return std::ranges::all_of(
      peers, [&](const PeerInfo& peer) { return peer.host_id == peers.front().host_id; });
}

class Joiner {
 public:
  Joiner(const GroupOptions& options, const base::Clock& clock)
      : options_(options),
        clock_(clock),
        start_(clock.now()),
        deadline_(start_ + std::chrono::milliseconds(options.rendezvous_timeout_ms)),
        next_notice_(start_ + kNoticeEvery) {
    hello_.rank = options.rank;
    hello_.world_size = options.world_size;
    hello_.pid = getpid();
    hello_.process = random_bytes(kNonceBytes);
    hello_.job = options.job.id;
    hello_.build = options.job.build;
    hello_.settings = options.job.settings;
    hello_.settings_digest = settings_digest(options.job.settings);
    hello_.host = host_name().substr(0, kIdentityTextBytes);
    hello_.host_id =
        (options.host_id.empty() ? host_id() : options.host_id).substr(0, kIdentityTextBytes);
    std::string method = options.init_method;
    window_ = options.listen.port_window;
    if (method.empty() || method == "env://") {
      const Identity identity = resolve_identity({.init_method = "env://",
                                                  .rank = options.rank,
                                                  .world_size = options.world_size,
                                                  .local_rank = {},
                                                  .job_id = hello_.job},
                                                 process_environment());
      method = identity.init_method;
      hello_.job = identity.job_from.value.substr(0, kIdentityTextBytes);
      window_ = identity.port_window;
    }
    if (window_ < 1 || (window_ > 1 && hello_.job.empty()))
      throw ConfigurationError(
          "a window of " + std::to_string(window_) +
          " ports: expected 1 or more, and a job id where it is more than one");
    if (method.rfind("file://", 0) == 0) {
      path_ = method.substr(7);
    } else if (method.rfind("tcp://", 0) == 0) {
      endpoint_ = parse_endpoint(std::string_view(method).substr(6), "init method");
    } else {
      throw ConfigurationError("init method \"" + method +
                               "\": expected env://, tcp://HOST:PORT or file:///PATH");
    }
  }

  JoinedStore join() {
    if (path_.empty()) secret_ = load_secret(options_.job.secret, "");
    if (options_.rank == 0) {
      open_server();
    } else if (path_.empty()) {
      scan_.emplace(endpoint_.host, endpoint_.port, window_, options_.restarted);
      refuse_unreachable_loopback(wait_for_name());
    }
    for (auto pause = kFirstPause;;) {
      connect();
      if (wait_for_all()) break;
      joined_.store.reset();
      pause_or_give_up(pause, place(), "the connection to it broke before the start");
    }
    joined_.address = reachable_address();
    joined_.secret = {keyed_hash(secret_, "engine group", joined_.store->state().group_nonce),
                      secret_.origin};
    joined_.job_secret = secret_;
    joined_.rendezvous_address = to_string(endpoint_);
    return std::move(joined_);
  }

 private:
  void open_server() {
    const int fd = options_.listen.fd;
    Rendezvous rendezvous;
    if (!path_.empty()) {
      if (!has_own_secret()) rendezvous.secret_hex = to_hex(random_bytes(32));
      rendezvous.nonce = to_hex(random_bytes(8));
      secret_ = load_secret(options_.job.secret, rendezvous.secret_hex);
    }
    StoreServerOptions server;
    server.listener =
        fd >= 0 ? Socket(fd)
                : listen_in_window(listen_endpoint(), path_.empty() ? window_ : 1, options_.notice);
    server.secret = secret_;
    server.heartbeat_ms = options_.heartbeat_ms;
    server.stall_after_ms = options_.stall.after_ms;
    server.stall_abort = options_.stall.abort;
    server.link_patience = link_patience();
    server.notice = options_.notice;
    endpoint_ = local_endpoint(server.listener.fd());
    if (!path_.empty()) {
      const std::string job = hello_.job;
      hello_.job += "/" + rendezvous.nonce;
      rendezvous.endpoint = endpoint_;
      rendezvous.pid = hello_.pid;
      rendezvous.start_time = process_start_time(hello_.pid);
      rendezvous.host = hello_.host;
      rendezvous.host_id = hello_.host_id;
      const auto is_running = [&](const Rendezvous& old) {
        // The secret is unknown, so that server cannot be queried.
        if (!has_own_secret() && old.secret_hex.empty()) return false;
        Hello probe = hello_;
        probe.job = job + "/" + old.nonce;
        return server_answers(old.endpoint, load_secret(options_.job.secret, old.secret_hex), probe,
                              base::deadline_in(std::chrono::seconds(2)));
      };
      joined_.file =
          std::make_unique<RendezvousFile>(path_, rendezvous, is_running, options_.notice);
    }
    server.job = hello_;
    // Both ends of its own connection, one end of each other connection, and the server's wake-up
    // descriptor.
    require_files(options_.world_size + 4, "the rendezvous on rank 0");
    joined_.server = std::make_unique<StoreServer>(std::move(server));
  }

  // A secret that was given may serve several jobs, so it is not written to the rendezvous file.
  bool has_own_secret() const {
    return !options_.job.secret.empty() || secret_comes_from_environment();
  }

  bool is_multi_host() const {
    return options_.local_world_size.value_or(options_.world_size) < options_.world_size;
  }

  Endpoint listen_endpoint() {
    if (!options_.listen.interface.empty())
      return {interface_address(options_.listen.interface), path_.empty() ? endpoint_.port : 0};
    if (path_.empty()) {
      refuse_unreachable_loopback(wait_for_name());
      return endpoint_;
    }
    if (options_.local_world_size == options_.world_size) return {"127.0.0.1", 0};
    const std::string address = default_address();
    if (is_multi_host() && is_loopback(address))
      throw ConfigurationError(
          "this host has no address but loopback, which ranks on other hosts cannot reach: "
          "expected a "
          "network interface, or --iface");
    return {address, 0};
  }

  // The name of rank 0's host may not be resolvable yet.
  std::vector<std::string> wait_for_name() {
    auto pause = kFirstPause;
    std::string reason;
    for (;;) {
      std::vector<std::string> addresses = look_up_host(endpoint_.host, steady_deadline(), reason);
      if (!addresses.empty()) return addresses;
      pause_or_give_up(pause, "at " + to_string(endpoint_), reason);
    }
  }

  // Many systems resolve their own name to loopback, which other hosts cannot reach.
  void refuse_unreachable_loopback(const std::vector<std::string>& addresses) {
    if (!std::all_of(addresses.begin(), addresses.end(), is_loopback) || !is_multi_host()) return;
    if (options_.rank != 0 && !options_.listen.interface.empty()) {
      scan_->use_instead_of_loopback(interface_address(options_.listen.interface));
    } else if (!is_address(endpoint_.host) && endpoint_.host != "localhost") {
      throw ConfigurationError("the host of rank 0, \"" + endpoint_.host + "\", resolves to " +
                               addresses.front() +
                               " here, which other hosts cannot reach, and the ranks are on "
                               "several hosts; give its address as "
                               "MASTER_ADDR, or --iface");
    } else if (options_.rank == 0 && options_.notice) {
      options_.notice("rendezvous at " + to_string(endpoint_) +
                      ": only ranks on this host can connect");
    }
  }

  // Retries until rank 0 accepts this rank.
  void connect() {
    auto pause = kFirstPause;
    std::string reason;
    bool reported_other_secret = false;
    for (;;) {
      if (std::optional<StoreSession> session = attempt(reason)) {
        joined_.store = std::make_shared<TcpStore>(
            std::move(*session), StoreClientOptions{.rank = options_.rank,
                                                    .heartbeat_ms = options_.heartbeat_ms,
                                                    .server = to_string(endpoint_),
                                                    .notice = options_.notice,
                                                    .link_patience = link_patience(),
                                                    .secret = secret_});
        return;
      }
      if (scan_ && !scan_->other_secret().empty()) {
        if (clock_.has_passed(deadline_)) throw AuthenticationError(scan_->other_secret());
        if (!reported_other_secret && options_.notice)
          options_.notice(scan_->other_secret() + "; still searching");
        reported_other_secret = true;
      }
      pause_or_give_up(pause, place(), reason);
    }
  }

  std::chrono::milliseconds link_patience() const {
    return std::chrono::milliseconds(options_.links.patience_ms);
  }

  std::string place() const {
    if (joined_.server) return "at " + to_string(endpoint_);
    return scan_ ? "at " + scan_->place() : "by " + path_;
  }

  void pause_or_give_up(std::chrono::milliseconds& pause, const std::string& where,
                        const std::string& reason) {
    if (clock_.has_passed(deadline_)) {
      throw PeerError("no rendezvous after " + seconds_text(clock_.now() - start_) +
                      " s: rank 0 did not appear " + where + " (" + reason + ")" + loopback_hint());
    }
    notice_when_due("waiting for rank 0 " + where + ": " + reason);
    stop_if_cancelled();
    std::this_thread::sleep_for(std::min(pause, clock_.sleep_time(deadline_)));
    pause = std::min(pause * 2, kLongestPause);
  }

  std::string loopback_hint() const {
    if (options_.rank == 0 || options_.local_world_size == options_.world_size ||
        !(is_loopback(endpoint_.host) || endpoint_.host == "localhost"))
      return "";
    return "; " + endpoint_.host + " is this host itself: is rank 0 here?";
  }

  std::optional<StoreSession> attempt(std::string& reason) {
    ++hello_.attempt;
    if (joined_.server)
      return open_own_session(joined_.server->connect_here(), secret_, hello_, steady_deadline(),
                              reason);
    if (scan_) {
      std::optional<StoreSession> session =
          scan_->round(secret_, hello_, steady_deadline(), reason);
      if (session) endpoint_ = scan_->found();
      return session;
    }
    const std::optional<Rendezvous> rendezvous = read_rendezvous(path_, reason);
    if (!rendezvous) return std::nullopt;
    if (is_certainly_dead(*rendezvous)) {
      reason = "the file was left behind by an earlier run";
      return std::nullopt;
    }
    endpoint_ = rendezvous->endpoint;
    if (!has_own_secret() && rendezvous->secret_hex.empty()) {
      reason = absent_secret_text(path_);
      return std::nullopt;
    }
    Hello hello = hello_;
    hello.job += "/" + rendezvous->nonce;
    secret_ = load_secret(options_.job.secret, rendezvous->secret_hex);
    const bool certain = has_own_secret() && !options_.restarted;
    SessionFault fault{};
    std::optional<StoreSession> session = open_session(
        endpoint_, secret_, hello,
        std::min(steady_deadline(), base::deadline_in(std::chrono::seconds(3))),
        unproved_.rule(certain ? OtherServers::kNone : OtherServers::kAtAddress), reason, &fault);
    if (!session) unproved_.note(fault);
    return session;
  }

  // Returns true if the group has started, false if the connection broke before.
  bool wait_for_all() {
    for (;;) {
      const Deadline next = std::min(deadline_, next_notice_);
      switch (joined_.store->wait_for_start(
          base::deadline_in(std::min(clock_.sleep_time(next), kPollInterval)))) {
        case TcpStore::StartState::kStarted:
          return true;
        case TcpStore::StartState::kDisconnected:
          return false;
        case TcpStore::StartState::kWaiting:
          break;
      }
      stop_if_cancelled();
      check_file_when_due();
      if (!clock_.has_passed(next)) continue;
      const auto [missing, left] = joined_.store->state().absent;
      const std::string who = std::to_string(missing.size()) + " of " +
                              std::to_string(options_.world_size) + " ranks" +
                              (missing.empty() ? "" : ": " + ranks_text(missing)) +
                              (left.empty() ? "" : "; joined and left again: " + ranks_text(left));
      if (clock_.has_passed(deadline_)) {
        std::string text =
            "no rendezvous after " + seconds_text(clock_.now() - start_) + " s: missing " + who;
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

  void stop_if_cancelled() {
    if (!options_.cancelled || !options_.cancelled()) return;
    if (joined_.server)
      joined_.server->give_up(RefusalKind::kPeer,
                              "rank 0 was stopped while it waited for the others");
    throw CancelledError("stopped while waiting for the other ranks");
  }

  // Without its file, no further rank finds rank 0.
  void check_file_when_due() {
    if (!joined_.file || clock_.now() < next_file_check_) return;
    next_file_check_ = clock_.now() + kFileCheckInterval;
    try {
      joined_.file->ensure_published(options_.notice);
    } catch (const Error& error) {
      joined_.server->give_up(RefusalKind::kPeer, error.what());
      throw;
    }
  }

  void notice_when_due(const std::string& text) {
    const auto now = clock_.now();
    if (now < next_notice_) return;
    next_notice_ += kNoticeEvery;
    if (options_.notice && options_.local_rank == 0)  // one notice per host
      options_.notice(text + " (" + seconds_text(now - start_) + " s of " +
                      std::to_string(options_.rendezvous_timeout_ms / 1000) + " s)");
  }

  // Returns the address that this rank publishes.
  std::string reachable_address() const {
    const bool one_host = is_one_host(joined_.store->state().peers);
    std::string address = !options_.listen.interface.empty()
                              ? interface_address(options_.listen.interface)
                          : one_host           ? "127.0.0.1"
                          : options_.rank == 0 ? endpoint_.host
                                               : joined_.store->local_address();
    if (!one_host && is_loopback(address) && options_.host_id.empty())
      throw ConfigurationError(
          "rank " + std::to_string(options_.rank) + " can be reached only at " + address +
          ", but there are ranks on other hosts; set --iface to an interface that reaches them");
    return address;
  }

  // The deadline, for waits that know only the steady clock.
  Deadline steady_deadline() const { return base::deadline_in(deadline_ - clock_.now()); }

  const GroupOptions& options_;
  const base::Clock& clock_;
  const Clock::time_point start_;
  const Deadline deadline_;
  Clock::time_point next_notice_, next_file_check_{};
  Hello hello_;
  Secret secret_;
  std::string path_;              // for file://, else empty
  Endpoint endpoint_;             // address of rank 0's store
  int window_ = 1;                // number of ports from endpoint_'s on
  UnprovedAnswers unproved_;      // of the server that the file names
  std::optional<PortScan> scan_;  // empty on rank 0, and for file://
  JoinedStore joined_;
};

}  // namespace

std::string relay_advice(const std::vector<PeerInfo>& peers) {
  if (is_one_host(peers)) return "";
  return "; if a firewall or a router keeps hosts from connecting to each other, give all ranks "
         "--relay rank0:PORT";
}

JoinedStore join_store(const GroupOptions& options, const base::Clock& clock) {
  return Joiner(options, clock).join();
}

}  // namespace backends
