// A full mesh of Gloo TCP pairs. Addresses are exchanged through our store; another thread can
// abort the mesh.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/context.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <stop_token>
#include <vector>

#include "backends/backend.h"
#include "backends/store/tcp_socket.h"

namespace backends {

// Without the "[path/of/its/source:line] " with which Gloo's texts start.
std::string plain_gloo_text(const char* text);

class GlooMesh final : public gloo::Context {
 public:
  // Listens: one port per peer on context.address, closed when someone has connected. Throws
  // PeerError if that someone has closed the connection already.
  explicit GlooMesh(const BackendContext& context);
  // Collective: publishes the addresses and connects every pair, also after one of them failed.
  // Returns the first failure, "" if there was none. Throws what the store throws.
  [[nodiscard]] std::string connect(const BackendContext& context);

  // Any thread. Waiting and later operations on the mesh throw gloo::IoException, here and at the
  // peers. Gloo has no call for that: after Pair::close() waiting operations sleep until the
  // timeout. So this shuts down the pairs' sockets, through duplicated descriptors, and Gloo's
  // thread sees the end of the stream.
  void shut_down() noexcept;
  // As Communicator::waiting_text(); members[r] is rank r's number for it. Any thread.
  std::string waiting_text(const std::vector<int>& members) const;

 private:
  void take_handles();
  // Once shut_down() was called, ends what is being connected to one of `addresses`, until stopped.
  void break_when_asked(const std::stop_token& stop,
                        const std::vector<std::vector<char>>& addresses) const;

  mutable std::mutex mutex_;  // guards what follows
  mutable std::condition_variable_any broken_now_;
  std::vector<Socket>
      handles_;  // a duplicate of each pair's descriptor: listening first, then connected
  bool broken_ = false;
};

}  // namespace backends
