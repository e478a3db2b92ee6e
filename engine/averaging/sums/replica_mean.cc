// Scaling and summing flat buffers, and the distance of each from the mean.
#include "engine/averaging/sums/replica_mean.h"

#include <cmath>

#include "engine/averaging/sums/flat_math.h"
#include "engine/ops/optim_step/optimizer_step.h"

namespace engine {

ReplicaMean::ReplicaMean(backends::Communicator& communicator, KernelContext& context,
                         ParameterBuffer& parameters, std::vector<FlatBuffer*> further)
    : communicator_(communicator),
      context_(context),
      parameters_(parameters),
      further_(std::move(further)) {}

void ReplicaMean::average(double weight) {
  sum(weight, parameters_.values);
  if (std::exchange(measure_, false)) spread_ = spread_of(parameters_.values);
  copy_flat(parameters_.gradients, parameters_.values);
  for (FlatBuffer* buffer : further_) {
    if (buffer->size() == 0) continue;
    sum(weight, *buffer);
    std::memcpy(buffer->data(), parameters_.gradients.data(), buffer->bytes());
  }
}

// In the gradients' memory, so that a collective that fails leaves the buffer as it was.
void ReplicaMean::sum(double weight, const FlatBuffer& buffer) {
  const FlatBuffer& scratch = parameters_.gradients;
  require(buffer.bytes() <= scratch.bytes(),
          "a buffer to be averaged is larger than the gradients");
  std::memcpy(scratch.data(), buffer.data(), buffer.bytes());
  TensorView view = buffer.flat();
  view.data = scratch.data();
  ops::scale(context_, weight, view);
  communicator_.all_reduce(scratch.data(), static_cast<std::size_t>(buffer.size()), buffer.dtype(),
                           backends::ReduceOp::kSum);
  bytes_sent_ += static_cast<std::int64_t>(buffer.bytes());
}

// `own` beside the mean, which is in the gradients' memory.
double ReplicaMean::spread_of(const FlatBuffer& own) {
  const FlatBuffer& mean = parameters_.gradients;
  const double norm = std::sqrt(ops::sum_of_squares(context_, mean.flat()));
  const FlatBuffer difference = FlatBuffer::like(own);
  subtract_flat(context_, own, mean, difference);
  const double apart = std::sqrt(ops::sum_of_squares(context_, difference.flat()));
  double largest = norm > 0 ? apart / norm : apart;
  communicator_.all_reduce(&largest, 1, DType::kF64, backends::ReduceOp::kMax);
  return largest;
}

}  // namespace engine
