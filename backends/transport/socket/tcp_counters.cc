// Asks for TCP_INFO. The kernel's header has the counters; the C library's lacks them and cannot be
// included beside it.
#include "backends/transport/socket/tcp_counters.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>

namespace backends {

std::optional<LinkCounters> read_tcp_counters(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  constexpr std::size_t kNeeded =
      offsetof(tcp_info, tcpi_data_segs_out) + sizeof info.tcpi_data_segs_out;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 || length < kNeeded)
    return std::nullopt;
  return LinkCounters{info.tcpi_data_segs_out, info.tcpi_total_retrans};
}

}  // namespace backends
