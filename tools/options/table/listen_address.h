// Parses the address of a server: a numeric address and a port.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tools {

struct ListenAddress {
  std::string address;  // "127.0.0.1", "::1"
  int port = 0;         // 0: any free port
};

// "9400", ":9400" and "localhost:9400" are this host's loopback address, which no other host
// reaches. Other addresses are numeric, those of IPv6 in brackets; "0.0.0.0" and "[::]" are all
// addresses of the host. Returns nothing for other texts.
std::optional<ListenAddress> parse_listen_address(std::string_view text);

}  // namespace tools
