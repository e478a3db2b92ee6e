// Sums gradients in the memory of CUDA devices, bucket by bucket on a separate stream while
// backward runs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backends/device_communicator.h"
#include "engine/averaging/sums/bucket_cut.h"
#include "engine/core/parameter_buffer.h"

namespace engine {

// Calls only enqueue work on streams (cudaStream_t).
class DeviceGradientSum {
 public:
  virtual ~DeviceGradientSum() = default;
  // The first `elements` of the gradients are final when `stream` reaches this point.
  virtual void ready(std::int64_t elements, void* stream) = 0;
  // Later work on `stream` sees the sums. Ends the step.
  virtual void finish(void* stream) = 0;
  // Returns true if the work may be part of a captured graph.
  virtual bool capturable() const = 0;
  // Discards the issued part of a step, after a capture that failed.
  virtual void drop_step() = 0;
  // Collective of the hosts alone. When every rank has called it, returns the failure of the first
  // rank whose `own` is not empty, as "rank 2: TEXT", or "" if there is none. Nothing on a device
  // waits for it. Throws PeerError as wait() does.
  virtual std::string first_failure(const std::string& own) = 0;
  // Waits until the stream is idle; throws PeerError if a rank fails or the deadline has passed.
  virtual void wait(void* stream) = 0;
};

// Returns a source of gradient memory that `communicator` may read without a copy. The communicator
// must outlive the memory.
MemorySource gradient_memory(backends::DeviceCommunicator& communicator);

// `communicator` must outlive the sum and must not be used otherwise; `gradients` are in memory
// of its device. Collective: before the first step, the ranks compare the calls of a step
// and the memory is registered.
std::unique_ptr<DeviceGradientSum> make_device_sum(backends::DeviceCommunicator& communicator,
                                                   const FlatBuffer& gradients,
                                                   const BucketOptions& options);

}  // namespace engine
