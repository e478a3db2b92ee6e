// One page over HTTP/1.1, for what polls it now and then (docs/adr/0026-http-by-hand.md). A thread
// of its own with the lowest priority answers; clients that are slow, many or hostile cost it
// little and the rest of the process nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace io {

struct HttpResponderOptions {
  std::string address = "127.0.0.1";  // numeric, IPv4 or IPv6
  int port = 0;                       // 0: any that is free
  std::string path = "/metrics";
  std::string name = "http";  // how messages begin: what wants to be served
  // Requests must name the address and port as their host (or localhost): a page of another site,
  // whose name was made to lead here, cannot read what a browser of this host may.
  bool own_host_only = false;
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

// Throws what HttpResponder throws where it could not be made; leaves nothing behind.
void check_http_address(const HttpResponderOptions& options);

}  // namespace io
