// Fully connected layer, with an optional fused ReLU, over the last dimension.
#include <cmath>
#include <string>
#include <vector>

#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"
#include "engine/ops/dense/dense.h"
#include "engine/ops/elementwise/elementwise.h"

namespace engine::layers {
namespace {

class Dense final : public Layer {
 public:
  explicit Dense(const DenseOptions& options)
      : Layer({.kind = "dense",
               .backward_needs = {.inputs = true},
               .fusions = {.relu = true},
               .stores_bf16_on_cpu = true,
               .extends_texts = true}),
        out_(options.out),
        bias_(options.bias),
        deviation_(options.deviation) {
    expect_at_least("dense", "out", out_, 1);
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    const Shape& in = inputs[0];
    if (in.rank() < 1)
      throw ShapeError("expected an input of shape [..., in], got " + in.to_string());
    std::vector<std::int64_t> dims(in.dims().begin(), in.dims().end());
    dims.back() = out_;
    return Shape(std::span<const std::int64_t>(dims));
  }

  // As PyTorch's Linear.reset_parameters(): kaiming_uniform with a = sqrt(5) is uniform within 1 /
  // sqrt(fan_in).
  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    const std::int64_t in = inputs[0].dims().back();
    const Initializer uniform{Initializer::Kind::kUniform, 1 / std::sqrt(static_cast<double>(in))};
    const Initializer normal{Initializer::Kind::kNormal, deviation_}, zero;
    std::vector<ParameterSpec> specs{
        {"weight", TensorLayout::plain({out_, in}), deviation_ > 0 ? normal : uniform}};
    if (bias_)
      specs.push_back({"bias", TensorLayout::plain({out_}), deviation_ > 0 ? zero : uniform});
    return specs;
  }

  LayerMemory memory(const MemoryRequest& r) const override {
    const std::int64_t in = r.inputs[0].dims().back();
    return {.scratch = ops::dense_scratch_bytes(r.batch * (r.inputs[0].count() / in), in, out_,
                                                r.dtype, r.threads, r.device, r.products),
            .packed = is_packed_for(r) ? ops::dense_packed_bytes(in, out_, r.packed) : 0};
  }

  void forward(const LayerRun& run) const override {
    if (!run.earlier.packed.empty()) return forward_packed(run);
    ops::dense_forward(run.kernels, {.x = rows(run.inputs[0]),
                                     .weight = run.parameters[0],
                                     .bias = bias_ ? run.parameters[1] : TensorView{},
                                     .relu = run.relu,
                                     .y = rows(run.output)});
  }

  void backward(const LayerRun& run) const override {
    const TensorView dy = rows(run.gradients.output);
    if (run.relu) ops::relu_backward(run.kernels, rows(run.output), dy, dy, Write::kOverwrite);
    ops::dense_backward_weights(run.kernels,
                                {.x = rows(run.inputs[0]),
                                 .dy = dy,
                                 .dweight = run.gradients.parameters[0],
                                 .dbias = bias_ ? run.gradients.parameters[1] : TensorView{},
                                 .write = run.gradients.parameter_write});
    if (run.gradients.inputs[0])
      ops::dense_backward_data(run.kernels, {.dy = dy,
                                             .weight = run.parameters[0],
                                             .dx = rows(run.gradients.inputs[0]),
                                             .write = run.gradients.input_writes[0]});
  }

 private:
  static bool is_packed_for(const MemoryRequest& r) {
    return r.device == Device::Kind::kCpu && r.dtype == DType::kF32 && r.products == Products::kF32;
  }

  void forward_packed(const LayerRun& run) const {
    const TensorView& weight = run.parameters[0];
    const ops::PackedWeight packed{.data = run.earlier.packed.data(),
                                   .dtype = run.earlier.packed_dtype,
                                   .in = weight.shape[1],
                                   .out = out_};
    if (!run.earlier.is_packed) ops::pack_dense_weight(run.kernels, weight, packed);
    ops::packed_dense_forward(run.kernels, rows(run.inputs[0]), packed,
                              bias_ ? run.parameters[1] : TensorView{}, run.relu, rows(run.output));
  }

  // Views [n, ..., c] as [n * ..., c].
  static TensorView rows(TensorView view) {
    const std::int64_t columns = view.shape.dims().back();
    view.shape = {view.count() / columns, columns};
    return view;
  }

  std::int64_t out_;
  bool bias_;
  double deviation_;
};

}  // namespace

LayerPtr dense(const DenseOptions& options) { return std::make_unique<Dense>(options); }
LayerPtr dense(std::int64_t out, bool bias) { return dense({.out = out, .bias = bias}); }

}  // namespace engine::layers
