// A parser that reads each byte once.
#include "io/metrics/http_request.h"

#include <algorithm>
#include <cctype>

#include "io/base/text/text_parts.h"

namespace io {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

// Returns a line without its end; `text` continues after it.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// Returns the path of "/metrics?name=x" and of "http://host:9100/metrics", which proxies send.
std::string path_of(std::string_view target) {
  if (target.starts_with("http://")) {
    const std::size_t path = target.find('/', 7);
    target = path == std::string_view::npos ? "/" : target.substr(path);
  }
  return std::string(target.substr(0, target.find('?')));
}

const char* reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 421:
      return "Misdirected Request";
    case 431:
      return "Request Header Fields Too Large";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Internal Server Error";
  }
}

// Reads "GET /metrics HTTP/1.1" into `request`, and gives its version, or "" if the line has
// another form.
std::string_view read_request_line(std::string_view line, HttpRequest& request) {
  const std::size_t space = line.find(' '), second = line.rfind(' ');
  if (space == std::string_view::npos || second <= space) return "";
  request.method = line.substr(0, space);
  const std::string_view target = line.substr(space + 1, second - space - 1),
                         version = line.substr(second + 1);
  const bool letters = std::ranges::all_of(
      request.method, [](unsigned char c) { return std::isalpha(c) != 0 || c == '-'; });
  if (request.method.empty() || !letters || target.empty() ||
      target.find(' ') != std::string_view::npos)
    return "";
  if (!version.starts_with("HTTP/") || version.size() != 8) return "";
  request.path = path_of(target);
  return version;
}

// Reads the fields of the head; false: it is malformed.
bool read_fields(std::string_view head, HttpRequest& request, int& hosts) {
  while (!head.empty()) {
    const std::string_view line = take_line(head);
    if (line.empty()) break;
    const std::size_t colon = line.find(':');
    // A blank before the colon, or a continued line, can be used for request smuggling.
    if (colon == std::string_view::npos || colon == 0 ||
        line.substr(0, colon).find_first_of(" \t") != std::string_view::npos)
      return false;
    const std::string name = lower(line.substr(0, colon));
    if (name == "host") {
      ++hosts;
      request.host = lower(base::trimmed(line.substr(colon + 1)));
    }
    if (name == "accept")
      request.accept += std::string(base::trimmed(line.substr(colon + 1))) + ",";
  }
  return true;
}

}  // namespace

HttpRequest parse_http_request(std::string_view head) {
  HttpRequest request;
  request.fault = 400;
  if (head.find('\0') != std::string_view::npos) return request;
  const std::string_view version = read_request_line(take_line(head), request);
  int hosts = 0;
  if (version.empty() || !read_fields(head, request, hosts)) return request;
  request.fault = 0;
  if (version != "HTTP/1.1" && version != "HTTP/1.0") request.fault = 505;
  if (version == "HTTP/1.1" && hosts != 1) request.fault = 400;
  return request;
}

std::optional<std::size_t> http_head_end(std::string_view text) {
  const std::size_t full = text.find("\r\n\r\n"), bare = text.find("\n\n");
  if (full == std::string_view::npos && bare == std::string_view::npos) return std::nullopt;
  return full < bare ? full + 4 : bare + 2;
}

std::string http_answer_head(int status, std::string_view type, std::size_t bytes) {
  std::string head =
      "HTTP/1.1 " + std::to_string(status) + " " + reason_of(status) + "\r\nContent-Type: ";
  head += type;
  head += "\r\nContent-Length: " + std::to_string(bytes) + "\r\n";
  if (status == 405) head += "Allow: GET, HEAD\r\n";
  return head + "Cache-Control: no-store\r\nConnection: close\r\n\r\n";
}

}  // namespace io
