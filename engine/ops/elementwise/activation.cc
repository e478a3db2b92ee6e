// Checks and dispatches the activation functions, and computes them in float64.
#include "engine/ops/elementwise/activation.h"

#include <algorithm>
#include <cmath>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/elementwise/activation_cpu.h"
#include "engine/ops/elementwise/elementwise_cuda.h"

namespace engine::ops {
namespace {

const ActivationTable& table_for(DType dtype) { return ENGINE_TABLE_FOR(dtype, activation_table); }

ActivationSizes sizes_of(const TensorView& x, const Activation& f) {
  return {x.count(), static_cast<int>(f.kind), static_cast<float>(f.slope)};
}

// NaN passes, as in PyTorch.
double relu6(double x) {
  const double positive = x < 0 ? 0 : x;
  return positive > 6 ? 6 : positive;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double activation(double x, const Activation& f) {
  switch (f.kind) {
    case ActivationKind::kRelu6:
      return relu6(x);
    case ActivationKind::kSilu:
      return x / (1 + std::exp(-x));
    case ActivationKind::kSigmoid:
      return sigmoid(x);
    case ActivationKind::kHardSigmoid:
      return relu6(x + 3) / 6;
    case ActivationKind::kHardSwish:
      return x * relu6(x + 3) / 6;
    case ActivationKind::kLeakyRelu:
      return x > 0 ? x : x * f.slope;
    case ActivationKind::kTanh:
      return std::tanh(x);
  }
  return x;
}

// The derivative at `v`, which is y if uses_output(), else x.
double activation_slope(double v, const Activation& f) {
  switch (f.kind) {
    case ActivationKind::kRelu6:
      return v > 0 && v < 6 ? 1 : 0;
    case ActivationKind::kSilu:
      return sigmoid(v) * (1 + v * (1 - sigmoid(v)));
    case ActivationKind::kSigmoid:
      return v * (1 - v);
    case ActivationKind::kHardSigmoid:
      return v > -3 && v < 3 ? 1.0 / 6 : 0;
    case ActivationKind::kHardSwish:
      return v <= -3 ? 0 : v < 3 ? v / 3 + 0.5 : 1;
    case ActivationKind::kLeakyRelu:
      return v > 0 ? 1 : f.slope;
    case ActivationKind::kTanh:
      return 1 - v * v;
  }
  return 0;
}

}  // namespace

std::optional<ActivationKind> find_activation(std::string_view name) {
  const auto found = std::ranges::find(kActivationNames, name);
  if (found == kActivationNames.end()) return std::nullopt;
  return static_cast<ActivationKind>(found - kActivationNames.begin());
}

void activation_forward(KernelContext& context, TensorView x, Activation function, TensorView y) {
  check_stored("activation_forward", "x", x);
  check_like("activation_forward", "y", y, x);
  check_context("activation_forward", context);
  dispatch(
      context, x.dtype,
      [&] {
        context.threads->run(x.count(), [&](std::int64_t first, std::int64_t last, int) {
          for (std::int64_t i = first; i < last; ++i)
            y.as<double>()[i] = activation(x.as<double>()[i], function);
        });
      },
      [&] { table_for(x.dtype).forward(x, sizes_of(x, function), y, *context.threads); },
      [&] {
        const auto [count, kind, slope] = sizes_of(x, function);
        cuda::activation_forward(context, x, kind, slope, y);
      });
}

void activation_backward(KernelContext& context, TensorView value, TensorView dy,
                         Activation function, TensorView dx, Write write) {
  check_stored("activation_backward", "the value", value);
  check_like("activation_backward", "dy", dy, value);
  check_like("activation_backward", "dx", dx, value);
  check_context("activation_backward", context);
  dispatch(
      context, value.dtype,
      [&] {
        context.threads->run(value.count(), [&](std::int64_t first, std::int64_t last, int) {
          for (std::int64_t i = first; i < last; ++i) {
            double& to = dx.as<double>()[i];
            const double gradient =
                dy.as<double>()[i] * activation_slope(value.as<double>()[i], function);
            to = write == Write::kAdd ? to + gradient : gradient;
          }
        });
      },
      [&] {
        table_for(value.dtype)
            .backward(value, dy, sizes_of(value, function), dx, write == Write::kAdd,
                      *context.threads);
      },
      [&] {
        const auto [count, kind, slope] = sizes_of(value, function);
        cuda::activation_backward(context, value, dy, kind, slope, dx, write);
      });
}

}  // namespace engine::ops
