// Lets a layer exchange statistics with all other replicas without knowing the ranks.
#pragma once

#include <cstdint>
#include <span>

#include "engine/core/tensor_view.h"

namespace engine {

// The rows of a batch: those of each sample, e.g. the pixels of an image.
struct ReplicaRows {
  std::int64_t samples = 0, per_sample = 1;
  std::int64_t count() const { return samples * per_sample; }
};

// All replicas run the same layers in the same order, including replicas without samples, and so
// make the same calls with the same sizes. Calls block, rethrow the communicator's exception, and
// give the same bits on all replicas. All of them return the number of rows of all replicas.
class ReplicaExchange {
 public:
  ReplicaExchange() = default;
  virtual ~ReplicaExchange();
  ReplicaExchange(const ReplicaExchange&) = delete;
  ReplicaExchange& operator=(const ReplicaExchange&) = delete;

  // The interface for layers: f64 tensors on the device of the computation, in place. On a CUDA
  // device they are exchanged when `stream` reaches this point, and later work on it sees the
  // result. Unless exchange_on_device() is overridden, the host waits for both, so this cannot be
  // captured. On the CPU, `stream` is ignored.
  std::int64_t merge_moments(const ReplicaRows& rows, const TensorView& moments, void* stream);
  std::int64_t add(const ReplicaRows& rows, const TensorView& sums, void* stream);

  // The same for host memory.
  // `moments` has per channel the mean, then per channel the sum of squared differences from it,
  // over `rows` rows of this replica (zeros if there are none). It becomes that of all replicas'
  // rows.
  virtual std::int64_t merge_moments(std::int64_t rows, std::span<double> moments) = 0;
  // `sums` becomes the sums over all replicas.
  virtual std::int64_t add(std::int64_t rows, std::span<double> sums) = 0;

 protected:
  enum class Kind { kMoments, kSums };

 private:
  // Exchanges memory of a CUDA device; by default through host memory.
  virtual std::int64_t exchange_on_device(Kind kind, const ReplicaRows& rows,
                                          const TensorView& values, void* stream);
  std::int64_t exchange(Kind kind, const ReplicaRows& rows, const TensorView& values, void* stream);
  std::int64_t exchange_on_host(Kind kind, std::int64_t rows, std::span<double> values);
  std::span<double> staged(std::size_t count, void* stream);

  std::span<double> staging_;  // pinned; grows only in the first steps
};

}  // namespace engine
