// Calculates in host memory, on the threads of the context.
#include "engine/averaging/math/state_math.h"

#include <cstring>

#include "engine/averaging/math/flat_math.h"
#include "engine/core/error.h"
#include "engine/ops/optim_step/optimizer_step.h"

namespace engine {

void StateMath::sum_on_devices(const TensorView&, backends::DeviceCommunicator*) {
  throw Error("values in host memory are summed by a communicator");
}

void StateMath::sum_codes(const CodedViews&, Elements, std::int64_t) {
  throw Error("codes of values in host memory are summed by CodedSum");
}

void HostMath::copy(const TensorView& from, const TensorView& to) {
  require(from.bytes() == to.bytes(), "rows of unequal size");
  if (to.bytes() > 0 && to.data != from.data) std::memcpy(to.data, from.data, to.bytes());
}

void HostMath::scale(double factor, const TensorView& from, const TensorView& to) {
  copy(from, to);
  ops::scale(context_, factor, to);
}

void HostMath::subtract(const TensorView& a, const TensorView& b, const TensorView& to) {
  subtract_rows(context_, a, b, to);
}

void HostMath::combine(double x, const TensorView& a, double y, const TensorView& b,
                       const TensorView& to) {
  combine_rows(context_, x, a, y, b, to);
}

void HostMath::sgd_step(const ops::SgdStep& step, const TensorView& gradient,
                        const TensorView& velocity, const TensorView& value) {
  ops::sgd_step(context_, step, gradient, velocity, value);
}

double HostMath::sum_of_squares(const TensorView& values) {
  return ops::sum_of_squares(context_, values);
}

}  // namespace engine
