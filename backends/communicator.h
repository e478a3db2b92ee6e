// The collectives of one group of ranks.
//
// Calls block, run in order and work in place; a communicator has one caller at a time. Every rank
// calls the same operations in the same order with the same counts. Results are complete on return.
// Every call has a deadline (the group's timeout). A failure throws PeerError, whose text names the
// backend, operation, count and rank and, if known, the missing rank. After a failure or abort()
// only destruction is allowed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "backends/control_word.h"

namespace backends {

// One call of one rank: its control word, and this rank's memory.
struct Call {
  ControlWord word;
  void* data = nullptr;         // in place; the output of all_gather and all_to_all
  const void* input = nullptr;  // of all_gather and all_to_all
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual std::string_view name() const = 0;  // "gloo", "shm", "single"
  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // Replaces the `count` elements at `data` by the reduction over all ranks, with the same bits on
  // every rank and in every run.
  void all_reduce(void* data, std::size_t count, DType type, ReduceOp op) {
    run(reduction(Operation::kAllReduce, data, count, type, op));
  }
  // Throws MismatchError if there is no rank `root`.
  void broadcast(void* data, std::size_t bytes, int root) {
    run(broadcast_call(data, bytes, root));
  }
  // Concatenates `bytes` from each rank, in rank order, into `output` (world_size * bytes).
  void all_gather(const void* input, std::size_t bytes, void* output) {
    run(gather_call(input, bytes, output));
  }
  // Sends the r-th `bytes` of `input` to rank r, and stores what rank r sends to this one as the
  // r-th of `output` (world_size * bytes each, which do not overlap).
  void all_to_all(const void* input, std::size_t bytes, void* output) {
    run(all_to_all_call(input, bytes, output));
  }
  // Gives rank r the elements [r*count/n, (r+1)*count/n) of the reduction, in place at that range;
  // the rest is undefined.
  void reduce_scatter(void* data, std::size_t count, DType type, ReduceOp op) {
    run(reduction(Operation::kReduceScatter, data, count, type, op));
  }
  void barrier();

  // Makes one call whose word exists already. The functions above make the word, once for all
  // communicators that the call passes through.
  virtual void run(const Call& call) = 0;

  // Returns what the current call waits for. Any thread.
  virtual CallWait current_wait() const { return {}; }
  // Makes current and future calls on this rank throw soon. May be called from any thread. Does not
  // throw.
  virtual void abort(std::string_view reason) noexcept = 0;

 protected:
  // Return the next call, with its number among the calls of this communicator.
  Call reduction(Operation operation, void* data, std::size_t count, DType type, ReduceOp op);
  Call broadcast_call(void* data, std::size_t bytes, int root);
  Call gather_call(const void* input, std::size_t bytes, void* output);
  Call all_to_all_call(const void* input, std::size_t bytes, void* output);

 private:
  std::uint32_t sequence_ = 0;
};

}  // namespace backends
