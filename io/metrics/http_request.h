// The head of an HTTP/1.1 request, and the head of the answer to it (RFC 9112).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace io {

struct HttpRequest {
  int fault = 0;  // 0, or the status that refuses it: 400, 505
  std::string method, path;
  std::string accept, host;  // the headers of these names; "": none
};

// Of text that ends with an empty line; only what a page needs is kept of it.
HttpRequest parse_http_request(std::string_view head);
// Where the head ends that `text` begins with; none: it is not all there yet.
std::optional<std::size_t> http_head_end(std::string_view text);

// "HTTP/1.1 200 OK" to the empty line; the connection ends with the answer.
std::string http_answer_head(int status, std::string_view type, std::size_t bytes);

}  // namespace io
