// Clients of every kind: those that want the page get it, whatever the others do.
#include "io/metrics/http_responder.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/base/files/io_error.h"
#include "tests/support/expect_contains.h"
#include "tests/support/time_limits.h"

namespace {

class Client {
 public:
  explicit Client(int port, int receive_bytes = 0, int patience_s = 1)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval limit{patience_s, 0};  // of connect(), too, where the server takes no more in
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (receive_bytes > 0)
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  bool send_text(const std::string& text) const {
    return send(fd_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  // All until the server closes; "TIMEOUT" if it does not.
  std::string receive_all(std::chrono::milliseconds base = std::chrono::seconds(20)) const {
    std::string all;
    const int limit = test_support::deadline_ms(static_cast<int>(base.count()));
    for (char buffer[4096];;) {
      pollfd ready{fd_, POLLIN, 0};
      if (poll(&ready, 1, limit) <= 0) return "TIMEOUT";
      const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
      if (n <= 0) return all;
      all.append(buffer, static_cast<std::size_t>(n));
    }
  }

 private:
  int fd_;
  bool connected_ = false;
};

constexpr const char* kGet = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

class Responder : public testing::Test {
 protected:
  std::string ask(const std::string& request) {
    const Client client(server_.port(), 0, 20);
    EXPECT_TRUE(client.connected());
    EXPECT_TRUE(client.send_text(request));
    return client.receive_all();
  }
  // Of the answer's status line.
  std::string status(const std::string& request) {
    const std::string answer = ask(request);
    return answer.substr(0, answer.find("\r\n"));
  }

  std::string body_ = "page\n";
  std::atomic<int> pages_{0};
  io::HttpResponder server_{{}, [this](std::string_view accept) {
                              ++pages_;
                              return io::HttpResponder::Content{
                                  "text/plain", accept.empty() ? body_ : std::string(accept)};
                            }};
};

TEST_F(Responder, ServesThePage) {
  EXPECT_EQ(server_.url(), "http://127.0.0.1:" + std::to_string(server_.port()) + "/metrics");
  EXPECT_EQ(ask(kGet),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nCache-Control: "
            "no-store\r\nConnection: close\r\n\r\npage\n");
  for (const char* request :
       {"GET /metrics HTTP/1.0\r\n\r\n", "GET /metrics?name=x HTTP/1.1\r\nhost:x\r\n\r\n",
        "GET http://h:1/metrics HTTP/1.1\r\nHost: h:1\r\n\r\n",
        "GET /metrics HTTP/1.1\nHost: x\n\n"})
    EXPECT_EQ(status(request), "HTTP/1.1 200 OK") << request;
  const std::string accepted =
      ask("GET /metrics HTTP/1.1\r\nHost: x\r\naCCept:  a/b \r\nUser-Agent: c\r\n\r\n");
  EXPECT_NE(accepted.find("\r\n\r\na/b"), std::string::npos) << accepted;
  const std::string head = ask("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_NE(head.find("Content-Length: 5\r\n"), std::string::npos);
  EXPECT_TRUE(head.ends_with("\r\n\r\n")) << head;
}

TEST_F(Responder, RefusesAllElse) {
  const std::pair<const char*, const char*> cases[] = {
      {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "404 Not Found"},
      {"GET /metricsx HTTP/1.1\r\nHost: x\r\n\r\n", "404 Not Found"},
      {"GET /../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", "404 Not Found"},
      {"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab",
       "405 Method Not Allowed"},
      {"GET /metrics HTTP/2.0\r\nHost: x\r\n\r\n", "505 HTTP Version Not Supported"},
      {"GET /metrics HTTP/1.1\r\n\r\n", "400 Bad Request"},
      {"GET /metrics HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", "400 Bad Request"},
      {"GET /metrics HTTP/1.1\r\nHost : x\r\n\r\n", "400 Bad Request"},
      {"GET /metrics HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", "400 Bad Request"},
      {"GET  HTTP/1.1\r\nHost: x\r\n\r\n", "400 Bad Request"},
      {"GET /metrics\r\n\r\n", "400 Bad Request"},
      {"\r\n\r\n", "400 Bad Request"},
      {"\x16\x03\x01\x02\n\n", "400 Bad Request"}};
  for (const auto& [request, expected] : cases)
    EXPECT_EQ(status(request), std::string("HTTP/1.1 ") + expected) << request;
  EXPECT_EQ(pages_, 0);
  EXPECT_VALUES(
      status("GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + std::string(9000, 'a') + "\r\n\r\n"),
      "HTTP/1.1 431");
  EXPECT_EQ(status(kGet), "HTTP/1.1 200 OK");
}

TEST(OwnHost, IsAskedForByNameOrAddress) {
  const io::HttpResponder server({.path = "/", .host_check = io::HostCheck::kNameAndPort},
                                 [](std::string_view) {
                                   return io::HttpResponder::Content{"text/plain", "page"};
                                 });
  const std::string port = std::to_string(server.port());
  const auto status = [&](const std::string& host) {
    const Client client(server.port());
    EXPECT_TRUE(client.send_text("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n"));
    const std::string answer = client.receive_all();
    return answer.substr(0, answer.find("\r\n"));
  };
  for (const std::string& host : {"127.0.0.1:" + port, "LocalHost:" + port, "[::1]:" + port})
    EXPECT_EQ(status(host), "HTTP/1.1 200 OK") << host;
  for (const std::string& host :
       {std::string("127.0.0.1"), "evil.example:" + port, "127.0.0.1:" + port + "0",
        "localhost.evil.example:" + port, std::string("localhost:1")})
    EXPECT_EQ(status(host), "HTTP/1.1 421 Misdirected Request") << host;
}

// As through a tunnel that begins at another port.
TEST(OwnHost, IsAskedForByNameAlone) {
  const io::HttpResponder server({.host_check = io::HostCheck::kName}, [](std::string_view) {
    return io::HttpResponder::Content{"text/plain", "page"};
  });
  const auto status = [&](const std::string& host) {
    const Client client(server.port());
    EXPECT_TRUE(client.send_text("GET /metrics HTTP/1.1\r\nHost: " + host + "\r\n\r\n"));
    const std::string answer = client.receive_all();
    return answer.substr(0, answer.find("\r\n"));
  };
  for (const char* host : {"127.0.0.1", "localhost", "localhost:1", "[::1]", "[::1]:9400"})
    EXPECT_EQ(status(host), "HTTP/1.1 200 OK") << host;
  for (const char* host : {"evil.example", "evil.example:9400", "127.0.0.1.evil.example", "",
                           "localhost.evil.example:1", "127.0.0.2", "[::2]:9400"})
    EXPECT_EQ(status(host), "HTTP/1.1 421 Misdirected Request") << host;
}

TEST(SecretPath, IsInNoAnswerToOthers) {
  const io::HttpResponder server({.path = "/secret/", .secret_path = true}, [](std::string_view) {
    return io::HttpResponder::Content{"text/plain", "page"};
  });
  const auto answer = [&](const std::string& path) {
    const Client client(server.port());
    EXPECT_TRUE(client.send_text("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n"));
    return client.receive_all();
  };
  for (const char* path : {"/", "/secret", "/secret/x", "//secret/", "/metrics"}) {
    const std::string text = answer(path);
    EXPECT_TRUE(text.starts_with("HTTP/1.1 404 ")) << text;
    EXPECT_EQ(text.find("secret"), std::string::npos) << text;
  }
  EXPECT_TRUE(answer("/secret/").ends_with("page"));
}

// They hold all that a source may hold and open more as fast as they can; nobody else is sent away
// before its answer.
// They come again less often than a slow responder accepts: its queue in the kernel is short.
TEST_F(Responder, SlowReadersDoNotStarveOthers) {
  body_ = std::string(4'000'000, 'x');
  std::atomic<bool> done{false};
  std::vector<std::thread> readers;
  readers.reserve(8);
  for (int i = 0; i < 8; ++i)
    readers.emplace_back([&] {
      while (!done) {
        const Client slow(server_.port(), 2048);
        static_cast<void>(slow.send_text(kGet));
        std::this_thread::sleep_for(std::chrono::seconds(1));
      }
    });
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(
        ask("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: a/b\r\n\r\n").ends_with("\r\n\r\na/b,"));
  done = true;
  for (std::thread& reader : readers) reader.join();
}

TEST_F(Responder, GarbageDoesNotStopIt) {
  std::mt19937 random(3);
  for (int i = 0; i < 30; ++i) {
    std::string garbage(random() % 20'000, '\0');
    for (char& c : garbage) c = static_cast<char>(random());
    const Client client(server_.port());
    static_cast<void>(client.send_text(garbage));
  }
  EXPECT_EQ(status(kGet), "HTTP/1.1 200 OK");
}

TEST_F(Responder, OneByteAtATimeIsARequestToo) {
  const Client client(server_.port());
  for (const char c : std::string(kGet)) ASSERT_TRUE(client.send_text(std::string(1, c)));
  EXPECT_TRUE(client.receive_all().ends_with("page\n"));
}

// More of them than there are places, and none ever says or reads anything.
TEST_F(Responder, ThoseWhoWaitAreServedBesideThoseWhoDoNothing) {
  body_ =
      std::string(4'000'000, 'x');  // more than the kernel takes for a client that reads nothing
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < 40; ++i) {
    idle.push_back(std::make_unique<Client>(server_.port(), 2048));
    if (i % 2 == 0) idle.back()->send_text(kGet);
  }
  EXPECT_TRUE(
      ask("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: a/b\r\n\r\n").ends_with("\r\n\r\na/b,"));
  // And they are sent away, not kept.
  EXPECT_NE(idle[39]->receive_all(std::chrono::seconds(30)), "TIMEOUT");
}

TEST_F(Responder, AFloodIsTakenInSlowly) {
  const auto start = std::chrono::steady_clock::now();
  int asked = 0;
  for (; std::chrono::steady_clock::now() - start < std::chrono::seconds(2); ++asked) {
    const Client client(server_.port());
    if (client.connected()) static_cast<void>(client.send_text(kGet));
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_LE(pages_, 50 * (seconds + 2));
}

TEST_F(Responder, EndsAtOnceWithClientsThatHang) {
  const Client silent(server_.port()), half(server_.port());
  ASSERT_TRUE(half.send_text("GET /met"));
  const auto start = std::chrono::steady_clock::now();
  {
    const io::HttpResponder other({},
                                  [](std::string_view) { return io::HttpResponder::Content{}; });
    const Client client(other.port());
    ASSERT_TRUE(client.send_text("GET"));
  }
  EXPECT_FALSE(test_support::is_past(start, std::chrono::seconds(1)));
}

TEST_F(Responder, AnAddressThatCannotBeHadIsSaid) {
  const auto refusal = [&](const std::string& address) {
    try {
      io::check_http_address({.address = address, .port = server_.port(), .name = "prometheus"});
    } catch (const io::CannotCreateError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  const std::string port = std::to_string(server_.port());
  EXPECT_VALUES(refusal("127.0.0.1"), "prometheus 127.0.0.1:" + port + ": port in use");
  EXPECT_VALUES(refusal("192.0.2.1"),
                "prometheus 192.0.2.1:" + port + ": Cannot assign requested address");
  EXPECT_EQ(refusal("127.0.0.2"), "none");
}

TEST(HttpResponder, APatientOneServesWhenTheAddressIsFree) {
  const auto page = [](std::string_view) { return io::HttpResponder::Content{"text/plain", "p"}; };
  auto first = std::make_unique<io::HttpResponder>(io::HttpResponderOptions{}, page);
  const int port = first->port();
  std::atomic<int> notices{0};
  const io::HttpResponder second(
      {.port = port, .patient = true, .notice = [&](const std::string&) { ++notices; }}, page);
  EXPECT_EQ(second.port(), 0);
  EXPECT_EQ(notices, 1);
  first.reset();
  ASSERT_TRUE(test_support::eventually([&] { return second.port() == port; }));
  const Client client(port);
  ASSERT_TRUE(client.send_text(kGet));
  EXPECT_TRUE(client.receive_all().ends_with("\r\n\r\np"));
}

}  // namespace
