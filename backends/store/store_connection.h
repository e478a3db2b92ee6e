// One end of a store connection: a non-blocking socket with the bytes that it has not accepted yet.
#pragma once

#include <string>
#include <string_view>

#include "backends/store/protocol/member_doubt.h"
#include "backends/store/tcp_socket.h"

namespace backends {

struct StoreConnection {
  Socket socket;
  std::string out = {};      // bytes not sent yet
  bool close_after = false;  // closed when they have been sent, or at `deadline`
  Deadline deadline{};
  Ending ending = Ending::kBroken;  // after receive() or flush() has returned a reason

  // Sends as much as the kernel accepts. Returns "", or why the connection ended.
  std::string flush();
  // Appends available bytes, at most 64 KiB. Returns "", or why the connection ended.
  std::string receive(std::string& bytes);
};

}  // namespace backends
