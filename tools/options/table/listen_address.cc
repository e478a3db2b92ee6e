// Does not look up names: the address of a name, and so who can reach the server, may change.
#include "tools/options/table/listen_address.h"

#include <arpa/inet.h>

#include "tools/options/table/value_text.h"

namespace tools {

std::optional<ListenAddress> parse_listen_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  const std::string_view port_text =
      colon == std::string_view::npos ? text : text.substr(colon + 1);
  const std::optional<std::int64_t> port = parse_integer(port_text);
  if (!port || *port < 0 || *port > 65535) return std::nullopt;
  ListenAddress result{.address = "127.0.0.1", .port = static_cast<int>(*port)};
  if (colon == std::string_view::npos || colon == 0) return result;
  const std::string_view host = text.substr(0, colon);
  if (host == "localhost") return result;
  const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  result.address = brackets ? host.substr(1, host.size() - 2) : host;
  unsigned char number[sizeof(in6_addr)];
  if (inet_pton(brackets ? AF_INET6 : AF_INET, result.address.c_str(), number) != 1)
    return std::nullopt;
  return result;
}

}  // namespace tools
