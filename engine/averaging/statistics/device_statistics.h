// Exchanges the statistics of layers between ranks in the memory of CUDA devices, on the stream of
// the computation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include "backends/device_communicator.h"
#include "engine/core/arena.h"
#include "engine/core/cuda.h"
#include "engine/core/replica_exchange.h"
#include "engine/ops/common/kernel_context.h"

namespace engine {

// Calls only enqueue work: one all-gather for each call, and kernels that combine the blocks of all
// ranks, by the tree of StatisticsTree. All ranks get the same bits.
class DeviceStatistics final : public ReplicaExchange {
 public:
  // `communicator` must outlive this, be capturable, and not be used otherwise during forward and
  // backward: gradients are summed at the same time by another one. `sizes`: of the layers that
  // exchange, in forward order. `measured`: see waited_seconds(). Collective: the ranks compare the
  // sizes.
  DeviceStatistics(backends::DeviceCommunicator& communicator, std::span<const std::int64_t> sizes,
                   const KernelContext& context, bool measured);

  // REQUIRES: called before each micro-batch, with the samples of each rank in it.
  void set_counts(std::span<const std::int64_t> counts);
  // Returns how long the device was in exchanges in the last micro-batch, mostly waiting for other
  // ranks. REQUIRES: `measured`; the micro-batch has ended, also as part of a captured graph.
  double waited_seconds() const;
  // Ends what waits for other ranks, after a failure.
  void cancel() noexcept { backends::cancel(communicator_); }

  using ReplicaExchange::add;
  using ReplicaExchange::merge_moments;
  // Statistics of a device are not in host memory: both throw Error.
  std::int64_t merge_moments(std::int64_t rows, std::span<double> moments) override;
  std::int64_t add(std::int64_t rows, std::span<double> sums) override;

 private:
  std::int64_t exchange_on_device(Kind kind, const ReplicaRows& rows, const TensorView& values,
                                  void* stream) override;

  backends::DeviceCommunicator& communicator_;
  KernelContext context_;
  std::int64_t samples_ = 0;  // of all ranks
  struct Wait {
    cuda::Event begin{/*timing=*/true}, end{/*timing=*/true};
  };
  const bool measured_;
  std::deque<Wait> waits_;  // by exchange of a micro-batch, equally many in each
  std::size_t next_ = 0;    // exchange of the micro-batch
  Arena own_, all_;         // a block, and those of all ranks, for the largest layer
};

}  // namespace engine
