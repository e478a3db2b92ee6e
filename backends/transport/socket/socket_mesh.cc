// Implements construction and abort of the mesh.
#include "backends/transport/socket/socket_mesh.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "backends/backend_error.h"
#include "backends/transport/socket/mesh_setup.h"
#include "io/base/files/system_error_text.h"

namespace backends {

SocketMesh::SocketMesh(const BackendContext& context)
    : streams_(context.streams),
      on_loopback_(context.address.starts_with("127.") || context.address == "::1"),
      sockets_(static_cast<std::size_t>(context.world_size) * static_cast<std::size_t>(streams_)),
      links_(sockets_.size()),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_) throw Error("eventfd: " + base::system_error_text(errno));
  MeshSetup(context, *this).run();
}

void SocketMesh::abort(std::string_view reason) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_.assign(reason);
  } catch (const std::exception&) {
    // Out of memory: aborts without a reason.
  }
  aborted_.store(true, std::memory_order_release);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(wake_.fd(), &one, sizeof one);
  // Shut down only the sending half: data that the peers have sent stays readable, so that a
  // mismatch is still found.
  for (const Socket& socket : sockets_) {
    if (socket) ::shutdown(socket.fd(), SHUT_WR);
  }
}

std::string SocketMesh::abort_reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

std::string SocketMesh::waiting_text(const std::vector<int>& members) const {
  std::string text;
  for (std::size_t i = 0; i < sockets_.size(); ++i) {
    if (!sockets_[i]) continue;  // this rank's own place
    const std::size_t peer = i / static_cast<std::size_t>(streams_);
    const std::string of_link = silent_link_text(sockets_[i].fd(), sockets_[i].fd(),
                                                 "rank " + std::to_string(members[peer]));
    if (!of_link.empty()) text += (text.empty() ? "" : ", ") + of_link;
  }
  return text;
}

}  // namespace backends
