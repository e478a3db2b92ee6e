// All-reduce over Gloo's pairs with our own schedule: every rank reduces its share of a block and hands it to all.
//
// Gloo's own algorithms each have sizes at which they stall or crawl (the table is in direct_exchange.cc); this schedule
// has none, folds in rank order (same bits as the other CPU backends), and needs no scratch beyond two blocks.
// Up to kSmallBytes every rank sends all to all and folds itself: one hop. Above, block by block: slice p goes to
// rank p, which folds it and sends it back to all, while the next block is already under way: two hops,
// 2 (n-1)/n bytes sent per byte, the least possible (Patarasuk and Yuan, 2009).
#pragma once

#include <gloo/transport/buffer.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "backends/communicator.h"
#include "backends/gloo/gloo_mesh.h"

namespace backends {

class DirectExchange {
 public:
  // REQUIRES: mesh is connected and outlives this.
  explicit DirectExchange(GlooMesh& mesh);
  // REQUIRES: mesh.break_off() was called. Waits until Gloo's thread has let go of the inboxes.
  ~DirectExchange();
  DirectExchange(const DirectExchange&) = delete;
  DirectExchange& operator=(const DirectExchange&) = delete;

  // In place. Allocates nothing of its own. Throws what Gloo throws.
  void all_reduce(char* data, std::size_t count, DataType type, ReduceOp op);

 private:
  // One way of one kind of message between this rank and a peer.
  struct Lane {
    std::unique_ptr<gloo::transport::Buffer> send, receive;
    std::vector<char> inbox;
    int unfinished = 0;  // sends not yet waited for
  };
  enum Kind { kSmall, kShare, kResult, kKinds };

  Lane& lane(Kind kind, unsigned parity, int peer) { return lanes_[kind][parity][static_cast<std::size_t>(peer)]; }
  void send(Lane& to, const char* data, std::size_t bytes);
  void finish_sends();
  void exchange_small(char* data, std::size_t count, DataType type, ReduceOp op);
  void exchange_blocks(char* data, std::size_t count, DataType type, ReduceOp op);
  void post_shares(char* block, std::size_t count, std::size_t width, unsigned parity);
  void finish_block(char* block, std::size_t count, DataType type, ReduceOp op, unsigned parity);
  // Folds `count` elements of all ranks, `own` at this rank's place, into `own`.
  void fold(char* own, std::size_t count, DataType type, ReduceOp op, Kind kind, unsigned parity);

  const int rank_, size_;
  const std::size_t block_bytes_;
  std::array<std::array<std::vector<Lane>, 2>, kKinds> lanes_;  // [kind][parity][peer]
  unsigned small_calls_ = 0, blocks_ = 0;
};

}  // namespace backends
