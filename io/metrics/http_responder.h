// Serves one page over HTTP/1.1 to clients that poll it occasionally
// (docs/adr/0026-http-by-hand.md). A separate thread with the lowest priority responds; clients
// that are slow, numerous or hostile cost it little and the rest of the process nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace io {

// Controls whether requests must name the responder as their host: its address or localhost. A page
// of another site whose name was made to resolve to this address then cannot read what a browser on
// this host may.
enum class HostCheck { kNone, kName, kNameAndPort };

struct HttpResponderOptions {
  std::string address = "127.0.0.1";  // numeric, IPv4 or IPv6
  int port = 0;                       // 0: any free port
  std::string path = "/metrics";
  std::string name = "http";  // the start of messages: the purpose of the server
  bool secret_path = false;   // no response names `path`: clients must know it
  HostCheck host_check = HostCheck::kNone;
  // If an address is in use, retries every second instead of failing; `notice` is called once about
  // that.
  bool patient = false;
  std::function<void(const std::string&)> notice = {};
};

class HttpResponder {
 public:
  struct Content {
    std::string type, body;
  };
  // Called for each request of the page, in the responder's thread, with the Accept header ("":
  // none was given).
  using Page = std::function<Content(std::string_view accept)>;

  // Throws CannotCreateError (in use, not allowed, not an address of this host).
  HttpResponder(HttpResponderOptions options, Page page);
  ~HttpResponder();  // takes milliseconds, regardless of clients
  HttpResponder(const HttpResponder&) = delete;
  HttpResponder& operator=(const HttpResponder&) = delete;

  int port() const;         // 0: not yet bound, while it retries
  std::string url() const;  // "http://127.0.0.1:9100/metrics"

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns true if only processes on this host can reach the address: 127.0.0.0/8 or ::1.
bool is_loopback_address(const std::string& address);

// Throws the exception of HttpResponder if it could not be created; has no other effect.
void check_http_address(const HttpResponderOptions& options);

}  // namespace io
