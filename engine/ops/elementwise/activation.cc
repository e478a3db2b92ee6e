// Checks and dispatches the activation functions, and computes them in float64.
#include "engine/ops/elementwise/activation.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/elementwise/activation_cpu.h"
#include "engine/ops/elementwise/elementwise_cuda.h"

namespace engine::ops {
namespace {

const ActivationTable& table_for(DType dtype) { return ENGINE_TABLE_FOR(dtype, activation_table); }

ActivationSizes sizes_of(const TensorView& x, const Activation& f) {
  return {x.count(), static_cast<int>(f.kind), static_cast<float>(f.first),
          static_cast<float>(f.second)};
}

cuda::ElementFunction element_function(const Activation& f) {
  return {static_cast<int>(f.kind), f.first, f.second};
}

// NaN passes, as in PyTorch.
double relu6(double x) {
  const double positive = x < 0 ? 0 : x;
  return positive > 6 ? 6 : positive;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double softplus(double x) { return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))); }
double sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

double mish_slope(double x) {
  const double t = std::tanh(softplus(x));
  return t + x * (1 - t * t) * sigmoid(x);
}

// A function, and its derivative at `v`, which is y if uses_output(), else x.
struct Function {
  double (*value)(double x, const Activation& f);
  double (*slope)(double v, const Activation& f);
};
using Numbers = const Activation&;

// In the order of ActivationKind.
constexpr Function kFunctions[] = {
    {[](double x, Numbers) { return relu6(x); },
     [](double y, Numbers) { return y > 0 && y < 6 ? 1.0 : 0; }},
    {[](double x, Numbers) { return x / (1 + std::exp(-x)); },
     [](double x, Numbers) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); }},
    {[](double x, Numbers) { return sigmoid(x); }, [](double y, Numbers) { return y * (1 - y); }},
    {[](double x, Numbers) { return relu6(x + 3) / 6; },
     [](double x, Numbers) { return x > -3 && x < 3 ? 1.0 / 6 : 0; }},
    {[](double x, Numbers) { return x * relu6(x + 3) / 6; },
     [](double x, Numbers) { return x <= -3 ? 0
                                    : x < 3 ? x / 3 + 0.5
                                            : 1; }},
    {[](double x, Numbers f) { return x > 0 ? x : x * f.first; },
     [](double y, Numbers f) { return y > 0 ? 1 : f.first; }},
    {[](double x, Numbers) { return std::tanh(x); }, [](double y, Numbers) { return 1 - y * y; }},
    {[](double x, Numbers) { return std::exp(x); }, [](double y, Numbers) { return y; }},
    {[](double x, Numbers) { return std::log(x); }, [](double x, Numbers) { return 1 / x; }},
    {[](double x, Numbers) { return std::sqrt(x); }, [](double y, Numbers) { return 0.5 / y; }},
    {[](double x, Numbers) { return std::erf(x); },
     [](double x, Numbers) { return 2 * std::numbers::inv_sqrtpi * std::exp(-x * x); }},
    {[](double x, Numbers) { return std::fabs(x); }, [](double x, Numbers) { return sign(x); }},
    {[](double x, Numbers) { return -x; }, [](double, Numbers) { return -1.0; }},
    {[](double x, Numbers) { return 1 / x; }, [](double y, Numbers) { return -y * y; }},
    {[](double x, Numbers) { return x != x ? x : softplus(x); },
     [](double x, Numbers) { return sigmoid(x); }},
    {[](double x, Numbers) { return x > 0 ? x : std::expm1(x); },
     [](double y, Numbers) { return y > 0 ? 1 : y + 1; }},
    {[](double x, Numbers) { return x * std::tanh(softplus(x)); },
     [](double x, Numbers) { return mish_slope(x); }},
    {[](double x, Numbers) { return x / (1 + std::fabs(x)); },
     [](double x, Numbers) { return 1 / ((1 + std::fabs(x)) * (1 + std::fabs(x))); }},
    {[](double x, Numbers f) { return x < f.first    ? f.first
                                      : x > f.second ? f.second
                                                     : x; },
     [](double x, Numbers f) { return x >= f.first && x <= f.second ? 1.0 : 0; }},
    {[](double x, Numbers f) { return std::pow(x, f.first); },
     [](double x, Numbers f) { return f.first == 0 ? 0 : f.first * std::pow(x, f.first - 1); }},
    {[](double x, Numbers f) { return f.first * x + f.second; },
     [](double, Numbers f) { return f.first; }}};
static_assert(std::size(kFunctions) == kActivationNames.size());

const Function& function_of(const Activation& f) {
  return kFunctions[static_cast<std::size_t>(f.kind)];
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
            y.as<double>()[i] = function_of(function).value(x.as<double>()[i], function);
        });
      },
      [&] { table_for(x.dtype).forward(x, sizes_of(x, function), y, *context.threads); },
      [&] { cuda::activation_forward(context, x, element_function(function), y); });
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
                dy.as<double>()[i] * function_of(function).slope(value.as<double>()[i], function);
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
        cuda::activation_backward(context, value, dy, element_function(function), dx, write);
      });
}

}  // namespace engine::ops
