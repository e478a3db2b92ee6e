// Sums gradients in the memory of CUDA devices, bucket by bucket on a separate stream while
// backward runs.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/control_word.h"
#include "backends/device_communicator.h"
#include "engine/averaging/sums/bucket_cut.h"
#include "engine/core/parameter_buffer.h"

namespace engine {

struct CodeExchange;  // engine/averaging/codes/device_coded_sum.h
struct LossyOptions;  // engine/averaging/codes/lossy_code.h
struct StepNumbers;   // engine/ops/optim_step/step_numbers.h

// Calls only enqueue work on streams (cudaStream_t).
class DeviceGradientSum {
 public:
  virtual ~DeviceGradientSum() = default;
  // Called before ready() in each step; `numbers` are in device memory, those of a captured step in
  // each of its launches. `round` is the same as theirs. Collective if the variant changes. Throws
  // PeerError.
  virtual void begin_step(const StepNumbers* /*numbers*/, std::int64_t /*round*/) {}
  // Returns a number that is equal for rounds with the same calls and kernels: a captured step is
  // launched for these alone. The same on all ranks.
  virtual std::int64_t variant(std::int64_t /*round*/) const { return 0; }
  // Called once, before the first step, if a policy has errors of the gradients (HomeBuffer): what
  // earlier steps did not send, and after it the velocity of a sum with momentum. In device memory,
  // with the slots of the gradients.
  virtual void set_errors(std::span<const FlatBuffer* const> /*errors*/) {}
  // The first `elements` of the gradients are final when `stream` reaches this point.
  virtual void ready(std::int64_t elements, void* stream) = 0;
  // Later work on `stream` sees the sums. Ends the step.
  virtual void finish(void* stream) = 0;
  // Returns true if the work may be part of a captured graph. If not, finish() may block the host
  // until the other ranks have sent theirs.
  virtual bool capturable() const = 0;
  // Names what passes through host memory if the work cannot be captured.
  virtual std::string_view exchanged() const { return "gradients"; }
  // Discards the issued part of a step, after a capture that failed.
  virtual void drop_step() = 0;
  // Collective of the hosts alone. When every rank has called it, returns the failure of the first
  // rank whose `own` is not empty, as "rank 2: TEXT", or "" if there is none. Nothing on a device
  // waits for it. Throws PeerError as wait() does.
  virtual std::string first_failure(const std::string& own) = 0;
  // Waits until the stream is idle; throws PeerError if a rank fails or the deadline has passed.
  virtual void wait(void* stream) = 0;
};

// For implementations. Returns the calls of a step that all-reduces buckets with these ends.
std::vector<backends::ControlWord> calls_of_buckets(std::span<const std::int64_t> ends,
                                                    DType dtype);
// Waits until the streams are idle, as DeviceGradientSum::wait(). `devices` is null if no other
// rank takes part in the work on them.
void wait_for(backends::DeviceCommunicator* devices, std::initializer_list<void*> streams);

// Returns a source of gradient memory that `communicator` may read without a copy. The communicator
// must outlive the memory.
MemorySource gradient_memory(backends::DeviceCommunicator& communicator);

// `communicator` must outlive the sum and must not be used otherwise; `gradients` are in memory
// of its device. Collective: before the first step, the ranks compare the calls of a step
// and the memory is registered.
std::unique_ptr<DeviceGradientSum> make_device_sum(backends::DeviceCommunicator& communicator,
                                                   const FlatBuffer& gradients,
                                                   const BucketOptions& options);

// Sums gradients as codes, which are computed on the device, with the bits of
// make_coded_sum(). The communicators must outlive the sum and must not be used otherwise during a
// step. Collective if the devices exchange the codes: the ranks compare the calls of a step.
std::unique_ptr<DeviceGradientSum> make_coded_device_sum(const CodeExchange& exchange,
                                                         const FlatBuffer& gradients,
                                                         const LossyOptions& options,
                                                         const BucketOptions& buckets);
// Returns the device memory of make_coded_device_sum() in bytes, without the errors.
std::size_t coded_device_sum_bytes(const LossyOptions& options, std::int64_t elements, DType dtype,
                                   const BucketOptions& buckets, int ranks);

// Sums gradients as bf16 that is computed on the device, with the codes and errors of
// make_bf16_sum(); the ranks' codes are added in the order of the communicator. The communicators
// must outlive the sum and must not be used otherwise during a step. Collective if the devices
// exchange the codes: the ranks compare the calls of a step.
std::unique_ptr<DeviceGradientSum> make_bf16_device_sum(const CodeExchange& exchange,
                                                        const FlatBuffer& gradients,
                                                        const BucketOptions& buckets);

// Sums the largest elements of the gradients after backward; they are selected on the device, with
// the bits of make_top_k_sum(). The communicators must outlive the sum and must not be used
// otherwise during a step. Collective if the devices exchange the codes: the ranks compare the
// calls of a step.
std::unique_ptr<DeviceGradientSum> make_top_k_device_sum(const CodeExchange& exchange,
                                                         const FlatBuffer& gradients, double ratio);
// Returns the device memory of make_top_k_device_sum() in bytes, at most, without the errors.
std::size_t top_k_device_sum_bytes(std::int64_t elements, DType dtype, double ratio, int ranks);

// Sums gradients by PowerSGD after backward, with the products of make_power_sgd_sum() on the
// device; the ranks' factors are added in the order of the communicator. Its errors are the error
// and the factors. The communicators must outlive the sum and must not be used otherwise during a
// step. Collective if the devices exchange the factors: the ranks compare the calls of a step.
// Defined in engine/averaging/low_rank/power_sgd_device_sum.cc.
std::unique_ptr<DeviceGradientSum> make_power_sgd_device_sum(const CodeExchange& exchange,
                                                             const FlatBuffer& gradients, int rank);
// Returns the device memory of make_power_sgd_device_sum() for gradients of these tensors, in
// bytes, without the errors. Defined in engine/averaging/low_rank/power_sgd_device_sum.cc.
std::size_t power_sgd_device_sum_bytes(std::span<const NamedLayout> tensors, DType dtype, int rank);

}  // namespace engine
