// Layers that attention is made of: batched products of matrices, and the softmax of rows.
#include <algorithm>
#include <string>
#include <vector>

#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"
#include "engine/ops/attention/softmax.h"
#include "engine/ops/matmul/matmul.h"

namespace engine::layers {
namespace {

class Matmul final : public Layer {
 public:
  explicit Matmul(const MatmulOptions& options)
      : Layer({.kind = "matmul",
               .options = {{"transpose_second", options.transpose_second ? 1.0 : 0.0},
                           {"scale", options.scale}},
               .backward_needs = {.inputs = true}}),
        transpose_(options.transpose_second),
        scale_(options.scale) {}

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 2);
    const auto &a = inputs[0].dims(), &b = inputs[1].dims();
    const std::size_t rank = a.size();
    if (rank < 2 || b.size() != rank || !std::equal(a.begin(), a.end() - 2, b.begin()) ||
        a[rank - 1] != b[rank - (transpose_ ? 1 : 2)])
      throw ShapeError(std::string("expected two inputs of shapes [..., m, k] and ") +
                       (transpose_ ? "[..., n, k]" : "[..., k, n]") + ", got " +
                       inputs[0].to_string() + " and " + inputs[1].to_string());
    std::vector<std::int64_t> dims(a.begin(), a.end());
    dims.back() = b[rank - (transpose_ ? 2 : 1)];
    return Shape(std::span<const std::int64_t>(dims));
  }
  LayerMemory memory(const MemoryRequest& r) const override {
    const Shape &a = r.inputs[0], y = output_shape(r.inputs);
    const std::int64_t m = a[a.rank() - 2], k = a.dims().back();
    const ops::MatmulSizes sizes{r.batch * (a.count() / (m * k)), m, y.dims().back(), k};
    return {.scratch = ops::matmul_scratch_bytes(sizes, r.dtype, r.threads, r.device, r.products)};
  }

  void forward(const LayerRun& run) const override {
    ops::matmul_forward(run.kernels, {.a = run.inputs[0],
                                      .b = run.inputs[1],
                                      .transpose_b = transpose_,
                                      .scale = scale_,
                                      .y = run.output});
  }
  void backward(const LayerRun& run) const override {
    ops::matmul_backward(run.kernels, {.a = run.inputs[0],
                                       .b = run.inputs[1],
                                       .dy = run.gradients.output,
                                       .transpose_b = transpose_,
                                       .scale = scale_,
                                       .da = run.gradients.inputs[0],
                                       .db = run.gradients.inputs[1],
                                       .da_write = run.gradients.input_writes[0],
                                       .db_write = run.gradients.input_writes[1]});
  }

 private:
  bool transpose_;
  double scale_;
};

class Softmax final : public Layer {
 public:
  Softmax()
      : Layer({.kind = "softmax",
               .backward_needs = {.output = true},
               .may_run_in_place = true,
               .extends_texts = true}) {}
  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    if (inputs[0].rank() < 1)
      throw ShapeError("expected an input of rank 1 or more, got " + inputs[0].to_string());
    return inputs[0];
  }

  void forward(const LayerRun& run) const override {
    ops::softmax_forward(run.kernels, run.inputs[0], run.output);
  }
  void backward(const LayerRun& run) const override {
    if (run.gradients.inputs[0])
      ops::softmax_backward(run.kernels, run.output, run.gradients.output, run.gradients.inputs[0],
                            run.gradients.input_writes[0]);
  }
};

}  // namespace

LayerPtr matmul(const MatmulOptions& options) { return std::make_unique<Matmul>(options); }
LayerPtr softmax() { return std::make_unique<Softmax>(); }

}  // namespace engine::layers
