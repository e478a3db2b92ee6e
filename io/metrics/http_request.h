// Parses the head of an HTTP/1.1 request, and formats the head of the response (RFC 9112).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace io {

struct HttpRequest {
  int fault = 0;  // 0, or the status of the rejection: 400, 505
  std::string method, path;
  std::string accept, host;  // the headers of these names; "": none
};

// Parses a text that ends with an empty line; keeps only what a page needs.
HttpRequest parse_http_request(std::string_view head);
// Returns the end of the head at the start of `text`; none: it is not complete yet.
std::optional<std::size_t> http_head_end(std::string_view text);

// Returns "HTTP/1.1 200 OK" up to the empty line; the connection ends with the response.
std::string http_answer_head(int status, std::string_view type, std::size_t bytes);

}  // namespace io
