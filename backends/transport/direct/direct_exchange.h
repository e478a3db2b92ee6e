// Collectives over point-to-point links with one schedule for all transports: verified, in rank
// order, without stalls.
//
// Every call begins with a head from each rank to each other: the call's control word and some
// payload. A rank compares a peer's word before it uses any other data of that peer, so disagreeing
// ranks detect the mismatch whatever each of them called. Calls of up to 16 KiB end there, and
// reductions of up to Links::one_hop_bytes(): one hop.
//  - Large reductions are a direct reduce-scatter followed by a direct all-gather, block by block:
//    slice p of a block goes to rank p, which sums all ranks' slices in rank order (the same bits
//    as every backend) and sends the result to all, while the next block is already being sent.
//    That is two hops, and 2 (n-1)/n bytes sent per byte, the minimum (Patarasuk and Yuan, 2009). A
//    ring sends as little but takes 2 (n-1) hops and sums in a different order for each slice. No
//    scratch memory is needed beyond the links' inboxes. With SumSlices of unequal weights, every
//    block is divided by them, so that slow links carry less all the time.
//  - Large broadcasts work in the same way, but only the root sends slices, and nothing is summed.
//    The other ranks forward their slices, so that the root need not send everything n-1 times.
//  - In large gathers every rank sends its block to all; in an all_to_all, each peer gets its own
//    block.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/communicator.h"
#include "backends/reduction.h"
#include "backends/transport/direct/links.h"

namespace backends {

class DirectExchange {
 public:
  // `members` are the ranks' numbers in the group, for messages; `slices` divide reductions.
  // REQUIRES: links is connected and outlives this.
  DirectExchange(Links& links, int rank, std::vector<int> members, SumSlices slices);

  // Makes a call, as in communicator.h, and allocates nothing. After an exception the caller's
  // memory is no longer read, and only destruction is allowed.
  void run(const Call& call);

 private:
  void make(const Call& call);
  void compare(const ControlWord& theirs, int peer) const;
  // Peer p gets the `bytes` at payload + p * stride.
  void send_heads(const char* payload, std::size_t bytes, std::size_t stride = 0);
  // `bytes`: payload of every peer's head beside the word; 0 for all but `root` if there is one.
  static constexpr int kNoRoot = -1;
  void receive_heads(std::size_t bytes, int root = kNoRoot);

  void reduce(char* data, std::size_t count, DType type, ReduceOp op);
  void broadcast(char* data, std::size_t bytes, int root);
  // all_gather if `stride` is 0; all_to_all if it is `bytes`.
  void transfer(const char* input, std::size_t stride, std::size_t bytes, char* output);
  void reduce_blocks(char* data, std::size_t count, DType type, ReduceOp op);
  void send_first_shares(const char* block, std::size_t count, std::size_t width);
  void send_shares(const SumSlices& slices, const char* block, std::size_t count, std::size_t width,
                   unsigned slot);
  void fold_own(char* own, std::size_t count, DType type, ReduceOp op, bool came_with_heads);
  void receive_results(const SumSlices& slices, char* block, std::size_t count, std::size_t width);
  void broadcast_blocks(char* data, std::size_t bytes, int root);
  void forward_own(char* block, std::size_t bytes, int root);
  void transfer_blocks(const char* input, std::size_t stride, std::size_t bytes, char* output);

  int peer(int step) const {
    return (rank_ + step) % size_;
  }  // rotated, so that not all ranks start with rank 0
  // Returns the bytes of this rank's share of a block that are in a peer's head: all of it or
  // nothing.
  std::size_t head_bytes(std::size_t share) const { return share <= Links::kHeadBytes ? share : 0; }

  Links& links_;
  const int rank_, size_;
  const std::vector<int> members_;
  const SumSlices slices_, equal_;  // of reductions, of broadcasts
  const std::size_t piece_bytes_, block_bytes_, sum_block_bytes_, one_hop_bytes_;
  std::vector<const void*> parts_;  // [rank] operands of the fold
  ControlWord word_;                // word of the current call
  unsigned head_slot_ = 0;          // slot of its heads
  bool heads_received_ = false;     // true if all peers' words also equal word_
  unsigned blocks_ = 0;
  bool slots_free_ = true;  // shares may be sent before the peers' heads have arrived
};

}  // namespace backends
