// Calculates in host memory, on the threads of the context.
#include "engine/averaging/math/state_math.h"

#include <cstring>

#include "engine/averaging/math/flat_math.h"
#include "engine/core/error.h"
#include "engine/ops/optim_step/optimizer_step.h"

namespace engine {

void HostMath::copy(const TensorView& from, const TensorView& to) {
  require(from.bytes() == to.bytes(), "rows of unequal size");
  if (to.bytes() > 0) std::memcpy(to.data, from.data, to.bytes());
}

void HostMath::scale(double factor, const TensorView& from, const TensorView& to) {
  copy(from, to);
  ops::scale(context_, factor, to);
}

void HostMath::subtract(const TensorView& a, const TensorView& b, const TensorView& to) {
  subtract_rows(context_, a, b, to);
}

void HostMath::sgd_step(const ops::SgdStep& step, const TensorView& gradient,
                        const TensorView& velocity, const TensorView& value) {
  ops::sgd_step(context_, step, gradient, velocity, value);
}

double HostMath::sum_of_squares(const TensorView& values) {
  return ops::sum_of_squares(context_, values);
}

void HostMath::sum_over_ranks(const TensorView& values) {
  communicator_->all_reduce(values.data, static_cast<std::size_t>(values.count()), values.dtype,
                            backends::ReduceOp::kSum);
}

}  // namespace engine
