// Fully connected layer, with an optional fused ReLU.
#include <cmath>

#include "engine/kernels/dense.h"
#include "engine/kernels/elementwise.h"
#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"

namespace engine::layers {
namespace {

class Dense final : public Layer {
 public:
  Dense(std::int64_t out, bool bias) : out_(out), bias_(bias) { expect_at_least("dense", "out", out, 1); }

  std::string_view kind() const override { return "dense"; }

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    expect_rank(inputs[0], 1, "");
    return {out_};
  }

  // PyTorch's Linear.reset_parameters(): kaiming_uniform with a = sqrt(5) is uniform within 1 / sqrt(fan_in).
  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    const std::int64_t in = inputs[0][0];
    const Initializer initializer{Initializer::Kind::kUniform, 1 / std::sqrt(static_cast<double>(in))};
    std::vector<ParameterSpec> specs{{"weight", TensorLayout::plain({out_, in}), initializer}};
    if (bias_) specs.push_back({"bias", TensorLayout::plain({out_}), initializer});
    return specs;
  }

  std::size_t scratch_bytes(std::span<const Shape> inputs, std::int64_t batch, DType dtype, int threads) const override {
    return kernels::dense_scratch_bytes(batch, inputs[0][0], out_, dtype, threads);
  }
  BackwardNeeds backward_needs() const override { return {.inputs = true}; }
  Fusions fusions() const override { return {.relu = true}; }

  void forward(const LayerRun& run) const override {
    kernels::dense_forward(run.kernels, run.inputs[0], run.parameters[0], bias_ ? run.parameters[1] : TensorView{}, run.relu,
                           run.output);
  }

  void backward(const LayerRun& run) const override {
    const TensorView dy = run.output_gradient;
    if (run.relu) kernels::relu_backward(run.kernels, run.output, dy, dy, Write::kOverwrite);
    kernels::dense_backward_weights(run.kernels, run.inputs[0], dy, run.parameter_gradients[0],
                                    bias_ ? run.parameter_gradients[1] : TensorView{}, run.parameter_write);
    if (run.input_gradients[0])
      kernels::dense_backward_data(run.kernels, dy, run.parameters[0], run.input_gradients[0], run.input_writes[0]);
  }

 private:
  std::int64_t out_;
  bool bias_;
};

}  // namespace

LayerPtr dense(std::int64_t out, bool bias) { return std::make_unique<Dense>(out, bias); }

}  // namespace engine::layers
