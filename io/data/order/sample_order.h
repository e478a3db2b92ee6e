// The interface of the orders in which an epoch takes the samples.
#pragma once

#include <cstdint>
#include <span>

namespace io {

// A new order: a class of this kind, its name in make_epoch_order() and in the option table. The
// Sampler cuts it into steps and ranks' shares, so that whatever the order is, ranks share it out
// without overlap.
class EpochOrder {
 public:
  virtual ~EpochOrder() = default;
  // Writes each of 0 .. order.size() - 1 once. Every rank computes it for itself, several threads
  // may at once, and resuming counts on it: a pure function of the arguments and the data set.
  virtual void fill(std::uint64_t seed, std::int64_t epoch,
                    std::span<std::int64_t> order) const = 0;
};

}  // namespace io
