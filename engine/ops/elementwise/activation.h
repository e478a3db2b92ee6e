// Activation functions without parameters besides ReLU and GELU, element by element, as PyTorch
// defines them.
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
  kLeakyRelu,    // x if x > 0, else x slope
  kTanh,
};

// The names of PyTorch's functions, in the order of the kinds.
inline constexpr std::array<std::string_view, 7> kActivationNames{
    "relu6", "silu", "sigmoid", "hard_sigmoid", "hard_swish", "leaky_relu", "tanh"};
// Returns nothing for an unknown name.
std::optional<ActivationKind> find_activation(std::string_view name);

struct Activation {
  ActivationKind kind = ActivationKind::kRelu6;
  double slope = 0.01;  // of leaky_relu; at least 0
};

// Whether the derivative is computed from y; otherwise, from x.
constexpr bool uses_output(ActivationKind kind) {
  return kind == ActivationKind::kRelu6 || kind == ActivationKind::kSigmoid ||
         kind == ActivationKind::kLeakyRelu || kind == ActivationKind::kTanh;
}

// x, y, dy, dx have any shape, the same for all. In f32, y is within 1e-6 of the definition,
// relative to |y| (silu: to |x|), and derivatives are within 2e-6.
void activation_forward(KernelContext& context, TensorView x, Activation function,
                        TensorView y);  // y may be x
// dx = dy y'(x). `value` is y if uses_output(), else x. dx may be dy (with kOverwrite).
void activation_backward(KernelContext& context, TensorView value, TensorView dy,
                         Activation function, TensorView dx, Write write);

}  // namespace engine::ops
