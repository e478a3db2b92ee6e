// Sums of gradients where they lie, on CUDA devices: bucket by bucket on a stream of their own,
// while backward goes on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backends/device_communicator.h"
#include "engine/averaging/sums/bucket_cut.h"
#include "engine/core/parameter_buffer.h"

namespace engine {

// Calls only put work on streams (cudaStream_t).
class DeviceGradientSum {
 public:
  virtual ~DeviceGradientSum() = default;
  // The first `elements` of the gradients are final once `stream` has come this far.
  virtual void ready(std::int64_t elements, void* stream) = 0;
  // What comes on `stream` sees the sums. Ends the step.
  virtual void finish(void* stream) = 0;
  // Whether its work may be part of a captured graph.
  virtual bool capturable() const = 0;
  // Forgets what of a step has been issued, after a capture that failed.
  virtual void drop_step() = 0;
  // Collective, of the host alone: when every rank has come here, what failed on the first whose
  // `own` is not empty, "rank 2: TEXT"; "" if there is none. Nothing on a device waits for it.
  // Throws PeerError as wait() does.
  virtual std::string first_failure(const std::string& own) = 0;
  // Waits until the stream is idle; throws PeerError when a rank is lost or the deadline has
  // passed.
  virtual void wait(void* stream) = 0;
};

// Memory for these gradients, which `communicator` may read without a copy. It outlives the memory.
MemorySource gradient_memory(backends::DeviceCommunicator& communicator);

// `communicator` outlives the sum and is used by nobody else; `gradients` (f32) lie in memory of
// its device. Collective: ranks compare the calls of a step, and the memory is registered, before
// the first one.
std::unique_ptr<DeviceGradientSum> make_device_sum(backends::DeviceCommunicator& communicator,
                                                   const FlatBuffer& gradients,
                                                   const BucketOptions& options);

}  // namespace engine
