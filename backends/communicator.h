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

#include "io/base/numbers/element_type.h"

namespace backends {

using base::DType;  // element types of reductions: all but i32
enum class ReduceOp : std::uint8_t { kSum, kMax, kMin };

std::string_view to_string(ReduceOp op);

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual std::string_view name() const = 0;  // "gloo", "shm", "single"
  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // Replaces the `count` elements at `data` by the reduction over all ranks, with the same bits on
  // every rank and in every run.
  virtual void all_reduce(void* data, std::size_t count, DType type, ReduceOp op) = 0;
  virtual void broadcast(void* data, std::size_t bytes, int root) = 0;
  // Concatenates `bytes` from each rank, in rank order, into `output` (world_size * bytes).
  virtual void all_gather(const void* input, std::size_t bytes, void* output) = 0;
  // Gives rank r the elements [r*count/n, (r+1)*count/n) of the reduction, in place at that range;
  // the rest is undefined.
  virtual void reduce_scatter(void* data, std::size_t count, DType type, ReduceOp op) = 0;
  virtual void barrier() = 0;

  // Returns which ranks the current call waits for and which connections are idle, as text that
  // follows "rank 0 has "; "" if unknown. Any thread.
  virtual std::string waiting_text() const { return {}; }
  // Makes current and future calls on this rank throw soon. May be called from any thread. Does not
  // throw.
  virtual void abort(std::string_view reason) noexcept = 0;
};

}  // namespace backends
