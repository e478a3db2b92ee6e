// A full mesh of Gloo TCP pairs, one for each direction. Addresses are exchanged through our store;
// another thread can abort the mesh.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/context.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/store/tcp_socket.h"

namespace backends {

// Without the "[path/of/its/source:line] " with which Gloo's texts start.
std::string plain_gloo_text(const char* text);

class GlooMesh final : public gloo::Context {
 public:
  // Listens: two ports per peer on context.address, closed when someone has connected. Throws
  // PeerError if that someone has closed the connection already.
  explicit GlooMesh(const BackendContext& context);
  // Collective: publishes the addresses and connects every pair, also after one of them failed.
  // Returns the first failure, "" if there was none. Throws what the store throws.
  [[nodiscard]] std::string connect(const BackendContext& context);
  // REQUIRES: all ranks have connected; a handle of a listener, which this drops, kept the
  // connections that a stranger came before. Dropping one resets those, and Gloo's thread ends the
  // process if that happens while it connects. Throws PeerError if a connection has ended.
  void take_handles(const std::vector<int>& members);

  // Two pairs to each peer: on one the lower rank sends, on the other the higher one. While a
  // caller writes to a pair, Gloo's thread cannot read from it, and spins until it can.
  gloo::transport::Pair& out(int peer) { return pair(rank < peer, peer); }
  gloo::transport::Pair& in(int peer) { return pair(rank > peer, peer); }

  // Any thread. Waiting and later operations on the mesh throw gloo::IoException, here and at the
  // peers. Gloo has no call for that: after Pair::close() waiting operations sleep until the
  // timeout. So this shuts down the pairs' sockets, through duplicated descriptors, and Gloo's
  // thread sees the end of the stream.
  void shut_down() noexcept;
  // Whether a connection has ended, from either side. Any thread.
  bool ended() const;
  // As Communicator::waiting_text(); members[r] is rank r's number for it. Any thread.
  std::string waiting_text(const std::vector<int>& members) const;

 private:
  gloo::transport::Pair& pair(bool lower_sends, int peer) {
    return *(lower_sends ? transportContext_ : higher_sends_)->getPair(peer);
  }
  // The peers': [2 * peer] of the pair on which the lower rank sends, [2 * peer + 1] of the other.
  std::vector<std::vector<char>> exchange_addresses(const BackendContext& context);
  // Once shut_down() was called, ends what is being connected to one of `addresses`, until stopped.
  void break_when_asked(const std::stop_token& stop,
                        const std::vector<std::vector<char>>& addresses) const;

  std::shared_ptr<gloo::transport::Context> higher_sends_;
  mutable std::mutex mutex_;  // guards what follows
  mutable std::condition_variable_any broken_now_;
  std::vector<Socket> handles_;  // a duplicate of each pair's descriptor, in and out: listening
                                 // first, then connected
  bool broken_ = false;
  // Names of the addresses that were published, here and by the peers; in the same order.
  std::vector<std::string> own_names_, peer_names_;
};

}  // namespace backends
