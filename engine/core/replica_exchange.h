// How a layer whose statistics are those of all replicas' samples reaches the other replicas,
// without knowing who they are.
#pragma once

#include <cstdint>
#include <span>

namespace engine {

// All replicas run the same layers in the same order, those without samples too, and so make the
// same calls with the same sizes. Calls block, throw what the wire throws, and give the same bits
// on all replicas.
class ReplicaExchange {
 public:
  virtual ~ReplicaExchange() = default;

  // `moments`: per channel the mean, then per channel the sum of squared differences from it, over
  // `rows` rows of this replica (zeros where there are none). Becomes those of all replicas' rows;
  // returns how many these are.
  virtual std::int64_t merge_moments(std::int64_t rows, std::span<double> moments) = 0;
  // `sums` become the sums over all replicas.
  virtual void add(std::span<double> sums) = 0;
};

}  // namespace engine
