// Computes the weighted mean of replicas: of parameters and of whatever is averaged with them.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "backends/communicator.h"
#include "engine/core/parameter_buffer.h"
#include "engine/ops/common/kernel_context.h"

namespace engine {

class ReplicaMean {
 public:
  // All arguments must outlive the mean. `further` are buffers besides the parameters' values.
  ReplicaMean(backends::Communicator& communicator, KernelContext& context,
              ParameterBuffer& parameters, std::vector<FlatBuffer*> further);

  // Replaces every buffer, without the part of frozen parameters, by the sum over ranks of weight *
  // contents, with the same bits on every rank.
  // Collective; a failed collective leaves its buffer unchanged. REQUIRES: the weights of the ranks
  // add up to 1. Overwrites the gradients.
  void average(double weight);

  // The spread of AveragingReport: the next average() after measure_spread() measures it once;
  // take_spread() returns each result once.
  void measure_spread() { measure_ = true; }
  std::optional<double> take_spread() { return std::exchange(spread_, std::nullopt); }
  std::int64_t bytes_sent() const { return bytes_sent_; }
  void set_bytes_sent(std::int64_t bytes) { bytes_sent_ = bytes; }

 private:
  std::size_t averaged_bytes(const FlatBuffer& buffer) const;
  const std::byte* sum(double weight, const FlatBuffer& buffer);  // returns the address of the sum
  double spread_of(const FlatBuffer& own);

  backends::Communicator& communicator_;
  KernelContext& context_;
  ParameterBuffer& parameters_;
  const std::vector<FlatBuffer*> further_;
  Arena wide_;  // for a buffer that is larger than the gradients; otherwise empty
  bool measure_ = false;
  std::optional<double> spread_;
  std::int64_t bytes_sent_ = 0;
};

}  // namespace engine
