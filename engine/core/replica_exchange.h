// How a layer whose statistics are those of all replicas' samples reaches the other replicas,
// without knowing who they are.
#pragma once

#include <cstdint>
#include <span>

#include "engine/core/tensor_view.h"

namespace engine {

// All replicas run the same layers in the same order, those without samples too, and so make the
// same calls with the same sizes. Calls block, throw what the wire throws, and give the same bits
// on all replicas. Both return how many rows all replicas have.
class ReplicaExchange {
 public:
  ReplicaExchange() = default;
  virtual ~ReplicaExchange();
  ReplicaExchange(const ReplicaExchange&) = delete;
  ReplicaExchange& operator=(const ReplicaExchange&) = delete;

  // What a layer calls: f64 tensors where it computes, in place. On a CUDA device they are
  // exchanged when `stream` has come this far, and what comes on it sees the result; the host waits
  // for both, so this cannot be captured. On the CPU `stream` is not looked at.
  std::int64_t merge_moments(std::int64_t rows, const TensorView& moments, void* stream);
  std::int64_t add(std::int64_t rows, const TensorView& sums, void* stream);

  // The same for host memory.
  // `moments`: per channel the mean, then per channel the sum of squared differences from it, over
  // `rows` rows of this replica (zeros where there are none). Becomes those of all replicas' rows.
  virtual std::int64_t merge_moments(std::int64_t rows, std::span<double> moments) = 0;
  // `sums` become the sums over all replicas.
  virtual std::int64_t add(std::int64_t rows, std::span<double> sums) = 0;

 private:
  template <class Call>
  std::int64_t on_host(const TensorView& values, void* stream, Call call);
  std::span<double> staged(std::size_t count, void* stream);

  std::span<double> staging_;  // pinned; grows in the first steps only
};

}  // namespace engine
