// Scales and sums flat buffers, and measures the distance of each from the mean.
#include "engine/averaging/sums/replica_mean.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/averaging/sums/flat_math.h"
#include "engine/ops/optim_step/optimizer_step.h"

namespace engine {

ReplicaMean::ReplicaMean(backends::Communicator& communicator, KernelContext& context,
                         ParameterBuffer& parameters, std::vector<FlatBuffer*> further)
    : communicator_(communicator),
      context_(context),
      parameters_(parameters),
      further_(std::move(further)) {
  std::size_t most = 0;
  for (const FlatBuffer* buffer : further_) most = std::max(most, averaged_bytes(*buffer));
  if (most > parameters.gradients.bytes()) wide_ = Arena(most);
}

// Frozen parameters and their states are equal on all ranks: a mean could only round them.
std::size_t ReplicaMean::averaged_bytes(const FlatBuffer& buffer) const {
  return static_cast<std::size_t>(parameters_.trained_elements(buffer)) * size_of(buffer.dtype());
}

void ReplicaMean::average(double weight) {
  const FlatBuffer& values = parameters_.values;
  const std::byte* mean = sum(weight, values);
  if (std::exchange(measure_, false)) spread_ = spread_of(values);
  if (values.bytes() > 0) std::memcpy(values.data(), mean, averaged_bytes(values));
  for (FlatBuffer* buffer : further_) {
    if (buffer->size() == 0) continue;
    mean = sum(weight, *buffer);
    std::memcpy(buffer->data(), mean, averaged_bytes(*buffer));
  }
}

// The sum goes to separate memory, so that a failed collective leaves the buffer unchanged: to the
// memory of the gradients if it is large enough.
const std::byte* ReplicaMean::sum(double weight, const FlatBuffer& buffer) {
  const std::size_t bytes = averaged_bytes(buffer);
  const std::int64_t count = parameters_.trained_elements(buffer);
  auto* memory = static_cast<std::byte*>(parameters_.gradients.data());
  if (bytes > parameters_.gradients.bytes()) memory = wide_.data();
  if (bytes > 0) std::memcpy(memory, buffer.data(), bytes);
  TensorView view = buffer.part(0, count);
  view.data = memory;
  ops::scale(context_, weight, view);
  communicator_.all_reduce(memory, static_cast<std::size_t>(count), buffer.dtype(),
                           backends::ReduceOp::kSum);
  bytes_sent_ += static_cast<std::int64_t>(bytes);
  return memory;
}

// Compares `own` with the mean, which is in the memory of the gradients.
double ReplicaMean::spread_of(const FlatBuffer& own) {
  const FlatBuffer& mean = parameters_.gradients;
  const double norm = std::sqrt(ops::sum_of_squares(context_, mean.flat()));
  const FlatBuffer difference = FlatBuffer::like(mean);
  subtract_flat(context_, own, mean, difference);
  const double apart = std::sqrt(ops::sum_of_squares(context_, difference.flat()));
  double largest = norm > 0 ? apart / norm : apart;
  communicator_.all_reduce(&largest, 1, DType::kF64, backends::ReduceOp::kMax);
  return largest;
}

}  // namespace engine
