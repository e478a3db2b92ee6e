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
  const bool measured = std::exchange(measure_, false);
  if (measured) copy_flat(parameters_.values, parameters_.gradients);
  sum(weight, parameters_.values);
  for (FlatBuffer* buffer : further_) sum(weight, *buffer);
  if (measured) spread_ = spread_from(parameters_.gradients);
}

void ReplicaMean::sum(double weight, FlatBuffer& buffer) {
  if (buffer.size() == 0) return;
  ops::scale(context_, weight, buffer.flat());
  communicator_.all_reduce(buffer.data(), static_cast<std::size_t>(buffer.size()), buffer.dtype(),
                           backends::ReduceOp::kSum);
  bytes_sent_ += static_cast<std::int64_t>(buffer.bytes());
}

double ReplicaMean::spread_from(const FlatBuffer& own) {
  subtract_flat(context_, own, parameters_.values, own);
  const double apart = std::sqrt(ops::sum_of_squares(context_, own.flat()));
  const double norm = std::sqrt(ops::sum_of_squares(context_, parameters_.values.flat()));
  double largest = norm > 0 ? apart / norm : apart;
  communicator_.all_reduce(&largest, 1, DType::kF64, backends::ReduceOp::kMax);
  return largest;
}

}  // namespace engine
