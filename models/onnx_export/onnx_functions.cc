// Implements one function per kind of activation that is not a single operator of ONNX.
#include <cmath>
#include <iterator>

#include "engine/layers/layers.h"
#include "models/onnx_export/onnx_layers.h"

namespace models {
namespace {

std::string add_clip(OnnxLayer& layer, double low, double high) {
  const auto bound = [&](double value) {
    return std::isfinite(value) ? layer.out.scalar(static_cast<float>(value)) : std::string();
  };
  std::vector<std::string> inputs{layer.inputs[0], bound(low), bound(high)};
  while (inputs.back().empty()) inputs.pop_back();
  return layer.out.add("Clip", std::move(inputs));
}
std::string add_relu6(OnnxLayer& layer) { return add_clip(layer, 0, 6); }
std::string add_bounds(OnnxLayer& layer) {
  return add_clip(layer, layer.option("first"), layer.option("second"));
}

std::string add_silu(OnnxLayer& layer) {
  const std::string& x = layer.inputs[0];
  return layer.out.add("Mul", {x, layer.out.add("Sigmoid", {x})});
}
std::string add_hard_sigmoid(OnnxLayer& layer) {
  return layer.out.add("HardSigmoid", layer.inputs, {{"alpha", 1.0F / 6}, {"beta", 0.5F}});
}
std::string add_leaky_relu(OnnxLayer& layer) {
  return layer.out.add("LeakyRelu", layer.inputs,
                       {{"alpha", static_cast<float>(layer.option("first"))}});
}

// Operator set 18 is the first with Mish.
std::string add_mish(OnnxLayer& layer) {
  OnnxBuilder& out = layer.out;
  const std::string& x = layer.inputs[0];
  return out.add("Mul", {x, out.add("Tanh", {out.add("Softplus", {x})})});
}

std::string add_power(OnnxLayer& layer) {
  return layer.out.add(
      "Pow", {layer.inputs[0], layer.out.scalar(static_cast<float>(layer.option("first")))});
}

std::string add_scale_shift(OnnxLayer& layer) {
  OnnxBuilder& out = layer.out;
  const auto scale = static_cast<float>(layer.option("first")),
             shift = static_cast<float>(layer.option("second"));
  const std::string y =
      scale == 1 ? layer.inputs[0] : out.add("Mul", {layer.inputs[0], out.scalar(scale)});
  return shift == 0 ? y : out.add("Add", {y, out.scalar(shift)});
}

// An operator of ONNX without attributes, or a function that adds several.
struct OnnxFunction {
  const char* type;
  std::string (*add)(OnnxLayer& layer) = nullptr;
};

// In the order of engine::ops::ActivationKind.
constexpr OnnxFunction kOnnxFunctions[] = {
    {"", add_relu6},
    {"", add_silu},
    {"Sigmoid"},
    {"", add_hard_sigmoid},
    {"HardSwish"},
    {"", add_leaky_relu},
    {"Tanh"},
    {"Exp"},
    {"Log"},
    {"Sqrt"},
    {"Erf"},
    {"Abs"},
    {"Neg"},
    {"Reciprocal"},
    {"Softplus"},
    {"Elu"},
    {"", add_mish},
    {"Softsign"},
    {"", add_bounds},
    {"", add_power},
    {"", add_scale_shift},
};
static_assert(std::size(kOnnxFunctions) == engine::ops::kActivationNames.size());

std::string add_activation(OnnxLayer& layer) {
  const OnnxFunction& function = kOnnxFunctions[static_cast<std::size_t>(layer.whole("function"))];
  return function.add != nullptr ? function.add(layer) : layer.out.add(function.type, layer.inputs);
}

constexpr OnnxKind kFunctionKinds[] = {
    {"activation", add_activation},
    {"scale_shift", add_activation},
};

}  // namespace

std::span<const OnnxKind> onnx_function_kinds() { return kFunctionKinds; }

}  // namespace models
