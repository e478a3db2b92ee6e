// Checks and dispatches, and plain loops over rows. A row has one or a few numbers, so these loops
// are also the fast kernel on the CPU.
#include "engine/ops/loss/regression_loss.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/common/rows.h"
#include "engine/ops/loss/regression_loss_cuda.h"

namespace engine::ops {
namespace {

template <class T>
T loss_of_error(RegressionLoss kind, T error) {
  const T size = std::abs(error);
  if (kind == RegressionLoss::kSquared) return error * error;
  if (kind == RegressionLoss::kAbsolute) return size;
  return size > 1 ? size - T{0.5} : T{0.5} * error * error;
}

// NaN stays NaN, unlike in a sign that is 0 for it: a loss that is NaN must not look as if it had
// converged.
template <class T>
T slope_at_error(RegressionLoss kind, T error) {
  if (kind == RegressionLoss::kSquared) return 2 * error;
  const T limit = kind == RegressionLoss::kAbsolute ? 0 : 1;
  return error > limit ? T{1} : error < -limit ? T{-1} : error;
}

// Both functions are finite for every x, since e^-|x| is at most 1.
template <class T>
T log_of_one_plus_exp(T x) {
  return std::max(x, T{0}) + std::log1p(std::exp(-std::abs(x)));
}
template <class T>
T sigmoid(T x) {
  const T e = std::exp(-std::abs(x));
  return (x >= 0 ? 1 : e) / (1 + e);
}

template <class T>
struct LossAndSlope {
  T loss, slope;
};

template <class T>
LossAndSlope<T> loss_of(RegressionLoss kind, T prediction, T target) {
  if (kind != RegressionLoss::kLogistic)
    return {loss_of_error(kind, prediction - target), slope_at_error(kind, prediction - target)};
  if (std::isnan(target)) return {0, 0};
  if (target == 0) return {log_of_one_plus_exp(prediction), sigmoid(prediction)};
  return {target * log_of_one_plus_exp(-prediction), -target * sigmoid(-prediction)};
}

// Computes rows [first, last).
template <class T>
void loss_of_rows(const RegressionLossForward& o, std::int64_t first, std::int64_t last) {
  const std::int64_t targets = row_sizes(o.prediction).width;
  const T *prediction = o.prediction.as<T>(), *target = o.target.as<T>();
  T *loss = o.loss.as<T>(), *gradient = o.gradient.as<T>();
  const T count = o.kind == RegressionLoss::kLogistic ? 1 : static_cast<T>(targets);
  for (std::int64_t r = first; r < last; ++r) {
    T sum = 0;
    for (std::int64_t i = r * targets; i < (r + 1) * targets; ++i) {
      const LossAndSlope<T> of = loss_of(o.kind, prediction[i], target[i]);
      sum += of.loss;
      if (gradient != nullptr) gradient[i] = of.slope / count;
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
      [&] { cuda::regression_loss_forward(context, o); });
}

}  // namespace engine::ops
