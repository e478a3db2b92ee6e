// A poll() loop over a few connections, each with a deadline and a limit on what it may send.
#include "io/metrics/http_responder.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <list>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "io/base/files/descriptor.h"
#include "io/base/files/io_error.h"
#include "io/base/files/retry_on_eintr.h"
#include "io/base/files/system_error_text.h"
#include "io/base/files/wake_event.h"
#include "io/metrics/http_request.h"

namespace io {
namespace {

using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kMaxConnections = 32, kMaxPerSource = 8, kMaxRequestBytes = 8192,
                      kMaxIgnoredBytes = 65536;
constexpr int kMaxAcceptedPerSecond = 50;
constexpr milliseconds kExchangeTime{5000};  // from accept() to the end of the response
constexpr milliseconds kFarewellTime{500};   // time in which a client may read the response
constexpr milliseconds kRetryTime{1000};

using base::Descriptor;

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

std::optional<SocketAddress> socket_address(const std::string& address, int port) {
  SocketAddress result;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&result.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&result.storage);
  if (inet_pton(AF_INET, address.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<std::uint16_t>(port));
    result.size = sizeof *v4;
    return result;
  }
  if (inet_pton(AF_INET6, address.c_str(), &v6->sin6_addr) != 1) return std::nullopt;
  v6->sin6_family = AF_INET6;
  v6->sin6_port = htons(static_cast<std::uint16_t>(port));
  result.size = sizeof *v6;
  return result;
}

std::string address_text(const HttpResponderOptions& options, int port) {
  const bool v6 = options.address.find(':') != std::string::npos;
  return (v6 ? "[" + options.address + "]" : options.address) + ":" + std::to_string(port);
}

Descriptor listen_at(const HttpResponderOptions& options) {
  const auto fail = [&](const std::string& cause) {
    throw CannotCreateError(options.name + " " + address_text(options, options.port) +
                            ": cannot listen there: " + cause);
  };
  std::optional<SocketAddress> address = socket_address(options.address, options.port);
  if (!address) fail("no IPv4 or IPv6 address in numbers");
  Descriptor fd(
      ::socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) fail(base::system_error_text(errno));
  const int on = 1;  // connections of the run before may still be dying
  static_cast<void>(::setsockopt(fd.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
  if (::bind(fd.fd(), address->get(), address->size) != 0 || ::listen(fd.fd(), 128) != 0)
    fail(errno == EADDRINUSE ? "the port is in use; give another one"
                             : base::system_error_text(errno));
  return fd;
}

// Returns the address without the port; for IPv6 the network, since a host has many addresses in
// it.
std::string source_of(const SocketAddress& peer) {
  if (peer.storage.ss_family == AF_INET6) {
    const auto& address = reinterpret_cast<const sockaddr_in6&>(peer.storage).sin6_addr;
    return {reinterpret_cast<const char*>(&address), 8};
  }
  const auto& address = reinterpret_cast<const sockaddr_in&>(peer.storage).sin_addr;
  return {reinterpret_cast<const char*>(&address), sizeof address};
}

int port_of(const Descriptor& fd) {
  SocketAddress address;
  address.size = sizeof address.storage;
  if (::getsockname(fd.fd(), address.get(), &address.size) != 0) return 0;
  return ntohs(address.storage.ss_family == AF_INET6
                   ? reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_port
                   : reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port);
}

// Reads a request, writes the response, and waits briefly for the client to read it: if closed with
// unread bytes, a socket would reset the connection and the response would be lost.
class Exchange {
 public:
  Exchange(Descriptor fd, std::string source)
      : fd_(std::move(fd)),
        source_(std::move(source)),
        until_(SteadyClock::now() + kExchangeTime) {}

  const std::string& source() const { return source_; }
  // The higher the value, the less is lost by closing: first the clients that have their response,
  // then those that do not read it.
  int progress() const { return static_cast<int>(stage_); }
  int fd() const { return fd_.fd(); }
  short events() const { return stage_ == Stage::kAnswer ? POLLOUT : POLLIN; }
  SteadyClock::time_point until() const { return until_; }

  // Makes all progress that is possible now; returns false if the exchange is over.
  template <class Answer>
  bool advance(const Answer& answer) {
    if (stage_ == Stage::kRequest) {
      if (!receive()) return false;
      const std::optional<std::size_t> end = http_head_end(request_);
      if (!end && request_.size() < kMaxRequestBytes) return true;
      const bool whole = end && *end <= kMaxRequestBytes;
      answer_ =
          answer(whole ? std::optional(std::string_view(request_).substr(0, *end)) : std::nullopt);
      stage_ = Stage::kAnswer;
    }
    if (stage_ == Stage::kAnswer) return send();
    request_.clear();
    if (!receive()) return false;
    ignored_ += request_.size();
    return ignored_ <= kMaxIgnoredBytes;
  }

 private:
  enum class Stage { kRequest, kAnswer, kFarewell };

  // Makes one read, so that no client is served for long at a time.
  bool receive() {
    std::array<char, 4096> buffer;
    const ssize_t n =
        base::retry_on_eintr([&] { return ::recv(fd_.fd(), buffer.data(), buffer.size(), 0); });
    if (n > 0) request_.append(buffer.data(), static_cast<std::size_t>(n));
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
  }

  bool send() {
    const ssize_t n = base::retry_on_eintr([&] {
      return ::send(fd_.fd(), answer_.data() + sent_, answer_.size() - sent_, MSG_NOSIGNAL);
    });
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    sent_ += static_cast<std::size_t>(n);
    if (sent_ < answer_.size()) return true;
    stage_ = Stage::kFarewell;
    until_ = SteadyClock::now() + kFarewellTime;
    return ::shutdown(fd_.fd(), SHUT_WR) == 0;
  }

  Descriptor fd_;
  std::string source_;
  SteadyClock::time_point until_;
  Stage stage_ = Stage::kRequest;
  std::string request_, answer_;
  std::size_t sent_ = 0, ignored_ = 0;
};

}  // namespace

struct HttpResponder::Impl {
  Impl(HttpResponderOptions o, Page p) : options(std::move(o)), page(std::move(p)) {
    try {
      begin_listening();
    } catch (const CannotCreateError& error) {
      if (!options.patient) throw;
      if (options.notice) options.notice(std::string(error.what()) + "; tried again every second");
    }
    thread = std::thread([this] { run(); });
  }
  ~Impl() {
    stopped = true;
    wake.wake();
    thread.join();
  }

  void begin_listening() {
    listener = listen_at(options);
    port = port_of(listener);
  }

  std::string answer(std::optional<std::string_view> head) const {
    const auto refuse = [](int status, const std::string& text) {
      return http_answer_head(status, "text/plain; charset=utf-8", text.size()) + text;
    };
    if (!head) return refuse(431, "the request is too long\n");
    const HttpRequest request = parse_http_request(*head);
    if (request.fault != 0) return refuse(request.fault, "no HTTP/1.1 request\n");
    if (!names_this_host(request.host))
      return refuse(421, options.secret_path
                             ? "another host's name\n"
                             : "see http://" + address_text(options, port) + options.path + "\n");
    if (request.method != "GET" && request.method != "HEAD")
      return refuse(405, "only GET and HEAD\n");
    if (request.path != options.path)
      return refuse(404, options.secret_path ? "the address of the page was printed at its start\n"
                                             : "see " + options.path + "\n");
    try {
      const Content content = page(request.accept);
      const std::string answer_head = http_answer_head(200, content.type, content.body.size());
      return request.method == "HEAD" ? answer_head : answer_head + content.body;
    } catch (const std::exception&) {
      return refuse(500, "no page\n");
    }
  }

  bool names_this_host(const std::string& host) const {
    if (options.host_check == HostCheck::kNone) return true;
    const std::string own_port = ":" + std::to_string(port);
    std::string name = host;
    if (options.host_check == HostCheck::kNameAndPort) {
      if (!name.ends_with(own_port)) return false;
      name.resize(name.size() - own_port.size());
    } else if (const std::size_t colon = name.rfind(':');
               colon != std::string::npos && name.find(']', colon) == std::string::npos) {
      name.resize(colon);  // a tunnel may start at another port
    }
    const std::string address = address_text(options, port);
    return name == "localhost" || name == address.substr(0, address.rfind(':')) ||
           (is_loopback_address(options.address) && (name == "127.0.0.1" || name == "[::1]"));
  }

  // A source with many connections loses one of its own, so that others keep theirs.
  void make_room(const std::string& source) {
    std::map<std::string_view, std::size_t> counts;
    for (const Exchange& e : exchanges) ++counts[e.source()];
    std::string_view from = source;
    if (counts[source] < kMaxPerSource) {
      if (exchanges.size() < kMaxConnections) return;
      from = std::ranges::max_element(counts, {}, [](const auto& c) { return c.second; })->first;
    }
    auto least = exchanges.end();
    for (auto e = exchanges.begin(); e != exchanges.end(); ++e)
      if (e->source() == from && (least == exchanges.end() || e->progress() > least->progress()))
        least = e;
    exchanges.erase(least);
  }

  bool advance(Exchange& exchange) const {
    return exchange.advance([this](std::optional<std::string_view> head) { return answer(head); });
  }

  // Accepts connections up to the limit per second: further ones wait in the kernel.
  void accept_all(SteadyClock::time_point now) {
    if (now - second >= std::chrono::seconds(1)) {
      second = now;
      accepted = 0;
    }
    while (accepted < kMaxAcceptedPerSecond) {
      SocketAddress peer;
      Descriptor fd(base::retry_on_eintr([&] {
        peer.size = sizeof peer.storage;
        return ::accept4(listener.fd(), peer.get(), &peer.size, SOCK_CLOEXEC | SOCK_NONBLOCK);
      }));
      if (!fd) {
        // Without descriptors or memory, the client would immediately be reported again.
        if (errno != EAGAIN && errno != ECONNABORTED) accepted = kMaxAcceptedPerSecond;
        return;
      }
      ++accepted;
      const std::string source = source_of(peer);
      make_room(source);
      exchanges.emplace_back(std::move(fd), source);
      // A request that has already arrived is answered before others can take its slot.
      if (!advance(exchanges.back())) exchanges.pop_back();
    }
  }

  bool may_accept(SteadyClock::time_point now) const {
    return listener &&
           (accepted < kMaxAcceptedPerSecond || now - second >= std::chrono::seconds(1));
  }

  void run() {
    // In Linux this affects only this thread.
    static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 19));
    while (!stopped) {
      try {
        poll_once();
      } catch (const std::exception&) {  // out of memory: the client will retry
        exchanges.clear();
      }
    }
  }

  void poll_once() {
    SteadyClock::time_point now = SteadyClock::now(), until = now + std::chrono::hours(1);
    if (!listener) until = now + kRetryTime;
    const bool accepts = may_accept(now);
    if (listener && !accepts) until = std::min(until, second + std::chrono::seconds(1));
    std::vector<pollfd> polled{{wake.fd(), POLLIN, 0}, {accepts ? listener.fd() : -1, POLLIN, 0}};
    for (const Exchange& e : exchanges) {
      polled.push_back({e.fd(), e.events(), 0});
      until = std::min(until, e.until());
    }
    const auto wait = std::chrono::ceil<milliseconds>(until - now).count();
    const int ready =
        ::poll(polled.data(), polled.size(), static_cast<int>(std::max<long>(0, wait)));
    if (stopped) return;
    now = SteadyClock::now();
    if (ready > 0) {
      std::size_t i = 2;
      for (auto e = exchanges.begin(); e != exchanges.end(); ++i) {
        const bool goes_on = polled[i].revents == 0 || advance(*e);
        e = goes_on ? std::next(e) : exchanges.erase(e);
      }
      if (polled[1].revents != 0) accept_all(now);
    }
    exchanges.remove_if([&](const Exchange& e) { return e.until() <= now; });
    if (!listener) listen_again();
  }

  void listen_again() {
    try {
      begin_listening();
      if (options.notice)
        options.notice(options.name + " " + address_text(options, port) + ": served now");
    } catch (const CannotCreateError&) {
      return;  // already reported
    }
  }

  const HttpResponderOptions options;
  const Page page;
  const base::WakeEvent wake;
  std::atomic<bool> stopped{false};
  std::atomic<int> port{0};
  // These belong to the thread.
  Descriptor listener;
  std::list<Exchange> exchanges;  // oldest first
  SteadyClock::time_point second = SteadyClock::now();
  int accepted = 0;  // in this second
  std::thread thread;
};

HttpResponder::HttpResponder(HttpResponderOptions options, Page page)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(page))) {}
HttpResponder::~HttpResponder() = default;

int HttpResponder::port() const { return impl_->port; }

std::string HttpResponder::url() const {
  const int port = impl_->port;
  return "http://" + address_text(impl_->options, port == 0 ? impl_->options.port : port) +
         impl_->options.path;
}

bool is_loopback_address(const std::string& address) {
  return address == "::1" || (address.starts_with("127.") && socket_address(address, 0));
}

void check_http_address(const HttpResponderOptions& options) {
  static_cast<void>(listen_at(options));
}

}  // namespace io
