// A full mesh of Gloo TCP pairs. Addresses are exchanged through our store; another thread can
// abort the mesh.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/context.h>

#include <memory>
#include <mutex>
#include <vector>

#include "backends/backend.h"
#include "backends/store/tcp_socket.h"

namespace backends {

class GlooMesh final : public gloo::Context {
 public:
  // Listens: one port per peer on context.address, closed when the peer has connected.
  explicit GlooMesh(const BackendContext& context);
  // Collective: publishes the addresses and connects every pair. Throws at the context's timeout.
  void connect(const BackendContext& context);

  // Any thread. Waiting and later operations on the mesh throw gloo::IoException, here and at the
  // peers. Gloo has no call for that: after Pair::close() waiting operations sleep until the
  // timeout. So this shuts down the pairs' sockets, through duplicated descriptors, and Gloo's
  // thread sees the end of the stream.
  void shut_down() noexcept;

 private:
  void take_handles();

  std::mutex mutex_;  // guards what follows
  std::vector<Socket>
      handles_;  // a duplicate of each pair's descriptor: listening first, then connected
  bool broken_ = false;
};

}  // namespace backends
