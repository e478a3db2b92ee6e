// Where a server listens: an address in numbers, and a port.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tools {

struct ListenAddress {
  std::string address;  // "127.0.0.1", "::1"
  int port = 0;         // 0: any that is free
};

// "9400", ":9400" and "localhost:9400" are this host's own address, which nobody else reaches.
// Other addresses are in numbers, those of IPv6 in brackets; "0.0.0.0" and "[::]" are all of the
// host's. Nothing: none of these.
std::optional<ListenAddress> parse_listen_address(std::string_view text);

}  // namespace tools
