// One page over HTTP/1.1, for what polls it now and then (docs/adr/0026-http-by-hand.md). A thread
// of its own with the lowest priority answers; clients that are slow, many or hostile cost it
// little and the rest of the process nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace io {

// Whether requests must name the responder as their host: its address or localhost. A page of
// another site, whose name was made to lead here, then cannot read what a browser of this host may.
enum class HostCheck { kNone, kName, kNameAndPort };

struct HttpResponderOptions {
  std::string address = "127.0.0.1";  // numeric, IPv4 or IPv6
  int port = 0;                       // 0: any that is free
  std::string path = "/metrics";
  std::string name = "http";  // how messages begin: what wants to be served
  bool secret_path = false;   // no answer names `path`: who asks has to know it
  HostCheck host_check = HostCheck::kNone;
  // An address that is in use is tried again every second, instead of being an error; `notice` is
  // told that, once.
  bool patient = false;
  std::function<void(const std::string&)> notice = {};
};

class HttpResponder {
 public:
  struct Content {
    std::string type, body;
  };
  // Asked for each request of the page, in the responder's thread, with the Accept header ("": none
  // was given).
  using Page = std::function<Content(std::string_view accept)>;

  // Throws CannotCreateError (in use, not allowed, no address of this host).
  HttpResponder(HttpResponderOptions options, Page page);
  ~HttpResponder();  // within milliseconds, whatever clients do
  HttpResponder(const HttpResponder&) = delete;
  HttpResponder& operator=(const HttpResponder&) = delete;

  int port() const;         // 0: not yet, while it is patient
  std::string url() const;  // "http://127.0.0.1:9100/metrics"

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Whether only processes of this host can reach the address: 127.0.0.0/8 or ::1.
bool is_loopback_address(const std::string& address);

// Throws what HttpResponder throws where it could not be made; leaves nothing behind.
void check_http_address(const HttpResponderOptions& options);

}  // namespace io
