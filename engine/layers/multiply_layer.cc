// Products of two tensors, of which one may have a single pixel: squeeze and excitation (Hu et al.,
// 2018).
#include "engine/ops/elementwise/multiply.h"

#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"

namespace engine::layers {
namespace {

// Whether each channel of `narrow` scales a channel of `wide`.
bool scales_channels(const Shape& wide, const Shape& narrow) {
  if (wide.rank() != 3) return false;
  return narrow == Shape{wide[2]} || narrow == Shape{1, 1, wide[2]};
}

class Multiply final : public Layer {
 public:
  Multiply()
      : Layer({.kind = "multiply",
               .backward_needs = {.inputs = true},
               .stores_bf16_on_cpu = true,
               .extends_texts = true}) {}

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 2);
    const Shape &a = inputs[0], &b = inputs[1];
    if (a == b || scales_channels(a, b)) return a;
    if (scales_channels(b, a)) return b;
    throw ShapeError("expected two inputs of one shape, or [h, w, c] and [c] or [1, 1, c], got " +
                     a.to_string() + " and " + b.to_string());
  }

  void forward(const LayerRun& run) const override {
    const std::size_t wide = wide_input(run);
    ops::multiply_forward(run.kernels,
                          {.a = run.inputs[wide], .b = run.inputs[1 - wide], .y = run.output});
  }
  // The two inputs may be one tensor, whose gradient is then written first for input 0.
  void backward(const LayerRun& run) const override {
    const std::size_t wide = wide_input(run);
    for (std::size_t i = 0; i < 2; ++i) {
      const TensorView& to = run.gradients.inputs[i];
      if (!to) continue;
      ops::MultiplyBackward o{
          .a = run.inputs[wide], .b = run.inputs[1 - wide], .dy = run.gradients.output};
      (i == wide ? o.da : o.db) = to;
      (i == wide ? o.da_write : o.db_write) = run.gradients.input_writes[i];
      ops::multiply_backward(run.kernels, o);
    }
  }

 private:
  // The index of the input with the output's shape.
  static std::size_t wide_input(const LayerRun& run) {
    return run.inputs[0].shape == run.output.shape ? 0 : 1;
  }
};

}  // namespace

LayerPtr multiply() { return std::make_unique<Multiply>(); }

}  // namespace engine::layers
