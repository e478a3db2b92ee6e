// Implements construction and abort of the mesh.
#include "backends/transport/socket/socket_mesh.h"

#include <sys/socket.h>

#include "backends/backend_error.h"
#include "backends/transport/socket/mesh_connector.h"
#include "backends/transport/socket/mesh_repair.h"
#include "backends/transport/socket/mesh_setup.h"

namespace backends {

SocketMesh::SocketMesh(const BackendContext& context, bool is_memory_stable)
    : streams_(context.streams), on_loopback_(is_on_loopback(context)) {
  if (context.link_patience.count() > 0)
    resuming_ = {replay_bytes(context.relay != nullptr), is_memory_stable,
                 [this] { wake_repairs(); }};
  connector_ = std::make_unique<MeshConnector>(context);
  MeshSetup set_up(*connector_, resuming_);
  set_up.run();
  links_ = set_up.take_links();
  oversubscribed_ = set_up.is_oversubscribed();
  if (!resumes()) {
    connector_.reset();
    return;
  }
  repair_ = std::make_unique<MeshRepair>(*this, *connector_);
  repairs_ = std::jthread([this](const std::stop_token& stop) { repair_->run(stop); });
}

// Closes the listener before the connections: peers that see their end learn that this one is gone.
SocketMesh::~SocketMesh() {
  repairs_.request_stop();
  wake_repairs();
  if (repairs_.joinable()) repairs_.join();
  connector_.reset();
}

void SocketMesh::wake_repairs() noexcept { repair_wake_.wake(); }
void SocketMesh::wake_caller() noexcept { wake_.wake(); }

void SocketMesh::take_wake() noexcept { wake_.clear(); }

void SocketMesh::end_resuming() noexcept {
  for (const auto& link : links_) {
    if (link) link->end_resuming();
  }
  ended_.store(true, std::memory_order_release);
  wake_repairs();
}

void SocketMesh::abort(std::string_view reason) noexcept {
  abort_.abort(reason);
  wake_caller();
  // Shut down only the sending half: data that the peers have sent stays readable, so that a
  // mismatch is still found.
  for (const auto& link : links_) {
    if (link) ::shutdown(link->fd(), SHUT_WR);
  }
  wake_repairs();
}

CallWait SocketMesh::current_wait(const std::vector<int>& members) const {
  CallWait wait;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    if (!links_[i]) continue;  // this rank's own place
    const std::size_t peer = i / static_cast<std::size_t>(streams_);
    const CallWait of_link =
        silent_link(links_[i]->fd(), links_[i]->fd(), "rank " + std::to_string(members[peer]));
    if (!of_link.text.empty()) wait.text += (wait.text.empty() ? "" : ", ") + of_link.text;
    wait.unacknowledged |= of_link.unacknowledged;
  }
  return wait;
}

}  // namespace backends
