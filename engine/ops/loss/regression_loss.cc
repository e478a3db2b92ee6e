// Checks and dispatches, and plain loops over rows. A row has one or a few numbers, so these loops
// are also the fast kernel on the CPU.
#include "engine/ops/loss/regression_loss.h"

#include <cmath>
#include <string_view>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/common/rows.h"
#include "engine/ops/loss/regression_loss_cuda.h"

namespace engine::ops {
namespace {

// Computes rows [first, last).
template <class T>
void loss_of_rows(const RegressionLossForward& o, std::int64_t first, std::int64_t last) {
  const std::int64_t targets = row_sizes(o.prediction).width;
  const T *prediction = o.prediction.as<T>(), *target = o.target.as<T>();
  T *loss = o.loss.as<T>(), *gradient = o.gradient.as<T>();
  const T count = static_cast<T>(targets);
  const bool squared = o.kind == RegressionLoss::kSquared;
  for (std::int64_t r = first; r < last; ++r) {
    T sum = 0;
    for (std::int64_t i = r * targets; i < (r + 1) * targets; ++i) {
      const T error = prediction[i] - target[i];
      sum += squared ? error * error : std::abs(error);
      if (gradient == nullptr) continue;
      // The sign of NaN is NaN, not 0: a loss that is NaN must not look as if it had converged.
      const T sign = error > 0 ? T{1} : error < 0 ? T{-1} : error;
      gradient[i] = (squared ? 2 * error : sign) / count;
    }
    loss[r] = sum / count;
  }
}

}  // namespace

void regression_loss_forward(KernelContext& context, const RegressionLossForward& o) {
  constexpr std::string_view kName = "regression_loss_forward";
  check_floating(kName, "prediction", o.prediction);
  if (o.prediction.shape.rank() != 2 || o.prediction.shape[1] < 1)
    throw ShapeError(std::string(kName) + ": prediction has the shape " +
                     o.prediction.shape.to_string() + ", expected [rows, targets >= 1]");
  const RowSizes sizes = row_sizes(o.prediction);
  check_dtype(kName, "target", o.target, wide_dtype(o.prediction.dtype));
  check_shape(kName, "target", o.target, o.prediction.shape);
  check_dtype(kName, "loss", o.loss, wide_dtype(o.prediction.dtype));
  check_shape(kName, "loss", o.loss, {sizes.rows});
  if (o.gradient) check_like(kName, "gradient", o.gradient, o.prediction);
  check_context(kName, context);
  const auto call = [&]<class T>(T) {
    context.threads->run(sizes.rows, [&](std::int64_t first, std::int64_t last, int) {
      loss_of_rows<T>(o, first, last);
    });
  };
  dispatch(
      context, o.prediction.dtype, [&] { call(double{}); }, [&] { call(float{}); },
      [&] {
        cuda::regression_loss_forward(context, o.prediction, o.target,
                                      o.kind == RegressionLoss::kSquared, o.loss, o.gradient);
      });
}

}  // namespace engine::ops
