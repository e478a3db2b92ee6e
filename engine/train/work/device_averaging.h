// Gradient averaging where gradients lie on CUDA devices: bucket by bucket on a stream of its own,
// while backward goes on.
#pragma once

#include <cstdint>
#include <memory>

#include "backends/device_communicator.h"
#include "engine/averaging/policies/averaging_policy.h"
#include "engine/train/work/device_work.h"

namespace engine {

struct DeviceSumOptions {
  std::int64_t bucket_bytes =
      25 << 20;         // the first bucket is 1 MiB at most, so that sending starts early
  bool overlap = true;  // false: all buckets after backward
};

// `communicator` outlives the sum and is used by nobody else; `gradients` lie in memory of its
// device. Collective: ranks compare the calls of a step, and the memory is registered, before the
// first one.
std::unique_ptr<DeviceGradientSum> make_device_sum(backends::DeviceCommunicator& communicator,
                                                   const FlatBuffer& gradients,
                                                   const DeviceSumOptions& options);

// What the trainer sees of it: the weights of the mean, and what a report says. The sums themselves
// are part of the step's work.
std::unique_ptr<AveragingPolicy> make_device_gradient_averaging(const FlatBuffer& gradients);

}  // namespace engine
