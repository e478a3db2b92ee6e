// The files, connections among them, that this process has open, and the limit on them.
#pragma once

#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

namespace backends {

// Throws Error unless `count` more files can be opened: libraries abort, or wait for ever, where
// they are refused one. `what` needs them, for the message.
void require_files(int count, const std::string& what);

// This process's IP sockets, for libraries that keep theirs to themselves; {} without /proc.
struct IpSocket {
  int fd;
  sockaddr_storage address;  // its own
};
std::optional<std::vector<IpSocket>> ip_sockets();

}  // namespace backends
