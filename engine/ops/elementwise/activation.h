// Functions of single elements without trained parameters besides ReLU and GELU, as PyTorch defines
// them.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// relu6(x) = min(max(x, 0), 6).
enum class ActivationKind {
  kRelu6,
  kSilu,         // x sigmoid(x)
  kSigmoid,      // 1 / (1 + e^-x)
  kHardSigmoid,  // relu6(x + 3) / 6
  kHardSwish,    // x relu6(x + 3) / 6
  kLeakyRelu,    // x if x > 0, else x first
  kTanh,
  kExp,
  kLog,
  kSqrt,
  kErf,
  kAbs,
  kNegate,
  kReciprocal,
  kSoftplus,    // log(1 + e^x)
  kElu,         // x if x > 0, else e^x - 1
  kMish,        // x tanh(log(1 + e^x))
  kSoftsign,    // x / (1 + |x|)
  kClip,        // min(max(x, first), second)
  kPower,       // x^first
  kScaleShift,  // first x + second
};

// The names of PyTorch's functions, in the order of the kinds.
inline constexpr std::array<std::string_view, 21> kActivationNames{
    "relu6",    "silu", "sigmoid", "hard_sigmoid", "hard_swish", "leaky_relu", "tanh",
    "exp",      "log",  "sqrt",    "erf",          "abs",        "negate",     "reciprocal",
    "softplus", "elu",  "mish",    "softsign",     "clip",       "power",      "scale_shift"};
// Returns nothing for an unknown name.
std::optional<ActivationKind> find_activation(std::string_view name);

struct Activation {
  ActivationKind kind = ActivationKind::kRelu6;
  double first = 0.01;  // numbers of the function; the slope of leaky_relu is at least 0
  double second = 0;
};

// Whether the derivative is computed from y; otherwise, from x.
constexpr bool uses_output(ActivationKind kind) {
  using enum ActivationKind;
  return kind == kRelu6 || kind == kSigmoid || kind == kLeakyRelu || kind == kTanh ||
         kind == kExp || kind == kSqrt || kind == kReciprocal || kind == kElu;
}

// x, y, dy, dx have any shape, the same for all. In f32, y is within 1e-6 of the definition,
// relative to |y| (silu, mish: to |x|; log: to the larger of |y| and 1), and derivatives are within
// 2e-6, relative to the larger of 1 and their size.
void activation_forward(KernelContext& context, TensorView x, Activation function,
                        TensorView y);  // y may be x
// dx = dy y'(x). `value` is y if uses_output(), else x. dx may be dy (with kOverwrite).
void activation_backward(KernelContext& context, TensorView value, TensorView dy,
                         Activation function, TensorView dx, Write write);

}  // namespace engine::ops
