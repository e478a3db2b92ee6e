// The weighted mean of replicas: parameters, and whatever is averaged along with them.
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
  // All of them outlive the mean. `further`: buffers beside the parameters' values.
  ReplicaMean(backends::Communicator& communicator, KernelContext& context,
              ParameterBuffer& parameters, std::vector<FlatBuffer*> further);

  // Every buffer, without what belongs to frozen parameters, becomes the sum over ranks of weight *
  // its content, the same bits on every rank.
  // Collective; one that fails leaves the buffer that it was for as it was. REQUIRES: the ranks'
  // weights add up to 1. Overwrites the gradients.
  void average(double weight);

  // The spread of AveragingReport: measured once, at the next average() after measure_spread();
  // take_spread() gives each result once.
  void measure_spread() { measure_ = true; }
  std::optional<double> take_spread() { return std::exchange(spread_, std::nullopt); }
  std::int64_t bytes_sent() const { return bytes_sent_; }
  void set_bytes_sent(std::int64_t bytes) { bytes_sent_ = bytes; }

 private:
  std::size_t averaged_bytes(const FlatBuffer& buffer) const;
  const std::byte* sum(double weight, const FlatBuffer& buffer);  // where it is
  double spread_of(const FlatBuffer& own);

  backends::Communicator& communicator_;
  KernelContext& context_;
  ParameterBuffer& parameters_;
  const std::vector<FlatBuffer*> further_;
  Arena wide_;  // for one of them that is larger than the gradients; else empty
  bool measure_ = false;
  std::optional<double> spread_;
  std::int64_t bytes_sent_ = 0;
};

}  // namespace engine
