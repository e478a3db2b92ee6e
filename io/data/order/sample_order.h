// The interface of the orders of samples in an epoch.
#pragma once

#include <cstdint>
#include <span>

namespace io {

// A new order needs a subclass, and its name in make_epoch_order() and in the option table. The
// Sampler divides it into steps and slices for the ranks, so that ranks do not overlap for any
// order.
class EpochOrder {
 public:
  virtual ~EpochOrder() = default;
  // Writes each of 0 .. order.size() - 1 once. Every rank computes it independently, several
  // threads may call it concurrently, and resuming relies on it: it must be a pure function of the
  // arguments and the data set.
  virtual void fill(std::uint64_t seed, std::int64_t epoch,
                    std::span<std::int64_t> order) const = 0;
};

}  // namespace io
