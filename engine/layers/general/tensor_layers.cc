// Tensors that are the same for every sample: trained parameters, and constants.
#include "engine/layers/general/general_layers.h"
#include "engine/layers/layer_checks.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/general/strided_copy.h"
#include "engine/ops/general/strided_sum.h"

namespace engine::layers {
namespace {

Shape expect_shape(const char* kind, const std::vector<std::int64_t>& shape) {
  if (shape.size() >= Shape::kMaxRank)
    throw ModelError(std::string(kind) + ": shape has " + std::to_string(shape.size()) +
                     " dimensions; expected at most " + std::to_string(Shape::kMaxRank - 1));
  for (const std::int64_t extent : shape) expect_at_least(kind, "an extent of shape", extent, 1);
  return Shape(std::span<const std::int64_t>(shape));
}

// Writes the tensor, in its own dtype, to each sample of `to`.
void repeat(KernelContext& kernels, const TensorView& tensor, const TensorView& to) {
  const std::int64_t batch = to.shape[0], count = tensor.count();
  if (batch == 0) return;
  TensorView first = sample_of(to, 0);
  first.shape = tensor.shape;
  if (tensor.dtype == to.dtype)
    ops::copy_or_add(kernels, tensor, first, Write::kOverwrite);
  else
    ops::cast(kernels, tensor, first);
  ops::StridedCopy copy{.x = to, .y = to, .axes = {}, .y_first = count};
  copy.axes.add({batch - 1, {0, count}});
  copy.axes.add({count, {1, 1}});
  ops::strided_copy(kernels, copy);
}

class Parameter final : public Layer {
 public:
  explicit Parameter(const ParameterOptions& options)
      : Layer({.kind = "parameter", .stores_bf16_on_cpu = true, .reads_inputs = false}),
        shape_(expect_shape("parameter", options.shape)),
        deviation_(options.deviation),
        initial_(options.initial) {
    if (!(deviation_ >= 0))
      throw ModelError("parameter: deviation must be at least 0, not " +
                       std::to_string(deviation_));
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 0);
    return shape_;
  }
  std::vector<ParameterSpec> parameters(std::span<const Shape>) const override {
    const Initializer initializer = deviation_ > 0
                                        ? Initializer{Initializer::Kind::kNormal, deviation_}
                                        : Initializer{Initializer::Kind::kConstant, initial_};
    return {{"weight", TensorLayout::plain(shape_), initializer}};
  }

  void forward(const LayerRun& run) const override {
    repeat(run.kernels, run.parameters[0], run.output);
  }
  void backward(const LayerRun& run) const override {
    const std::int64_t count = shape_.count();
    ops::StridedSum sum{.u = run.gradients.output,
                        .y = run.gradients.parameters[0],
                        .kept = {},
                        .summed = {},
                        .write = run.gradients.parameter_write};
    sum.kept.add({count, {1, 0, 0, 1}});
    sum.summed.add({run.gradients.output.shape[0], {count, 0, 0, 0}});
    ops::strided_sum(run.kernels, sum);
  }

 private:
  Shape shape_;
  double deviation_, initial_;
};

class Constant final : public Layer {
 public:
  Constant(const std::vector<std::int64_t>& shape, double initial)
      : Layer({.kind = "constant", .stores_bf16_on_cpu = true, .reads_inputs = false}),
        shape_(expect_shape("constant", shape)),
        initial_(initial) {}

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 0);
    return shape_;
  }
  std::vector<BufferSpec> buffers(std::span<const Shape>) const override {
    return {{.name = "value", .shape = shape_, .initial = initial_, .is_constant = true}};
  }

  void forward(const LayerRun& run) const override {
    repeat(run.kernels, run.buffers[0], run.output);
  }
  void backward(const LayerRun&) const override {}

 private:
  Shape shape_;
  double initial_;
};

}  // namespace

LayerPtr parameter(const ParameterOptions& options) { return std::make_unique<Parameter>(options); }
LayerPtr constant(const std::vector<std::int64_t>& shape, double initial) {
  return std::make_unique<Constant>(shape, initial);
}

}  // namespace engine::layers
