// Sums, differences, products and quotients of two tensors, expanded to a common shape. Sums of one
// shape, and products of one shape or with a vector of channels (squeeze and excitation; Hu et al.,
// 2018), have kernels of their own.
#include <algorithm>
#include <array>

#include "engine/layers/general/general_layers.h"
#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/elementwise/multiply.h"
#include "engine/ops/general/broadcast.h"

namespace engine::layers {
namespace {

Shape expanded_shape(std::span<const Shape> inputs) {
  expect_inputs(inputs, 2);
  const bool first_is_longer = inputs[0].rank() >= inputs[1].rank();
  const Shape &longer = inputs[first_is_longer ? 0 : 1], &shorter = inputs[first_is_longer ? 1 : 0];
  Shape output = longer;
  const int more = longer.rank() - shorter.rank();
  for (int d = 0; d < shorter.rank(); ++d) {
    std::int64_t& extent = output[d + more];
    if (extent != shorter[d] && extent != 1 && shorter[d] != 1)
      throw ShapeError("expected two inputs whose extents, from the last on, are equal or 1, got " +
                       inputs[0].to_string() + " and " + inputs[1].to_string());
    extent = std::max(extent, shorter[d]);
  }
  return output;
}

// The view of [batch, item...] with extents of 1 after the batch, so that it has this rank.
TensorView with_rank(TensorView view, int rank) {
  std::array<std::int64_t, Shape::kMaxRank> extents{};
  std::fill_n(extents.begin(), rank, 1);
  const int more = rank - view.shape.rank();
  for (int d = 0; d < view.shape.rank(); ++d)
    extents[static_cast<std::size_t>(d == 0 ? 0 : d + more)] = view.shape[d];
  view.shape = Shape(std::span<const std::int64_t>(extents.data(), static_cast<std::size_t>(rank)));
  return view;
}

class Binary : public Layer {
 public:
  Binary(LayerTraits traits, ops::BinaryKind kind) : Layer(std::move(traits)), kind_(kind) {}

  Shape output_shape(std::span<const Shape> inputs) const final { return expanded_shape(inputs); }

  void forward(const LayerRun& run) const override {
    const int rank = run.output.shape.rank();
    ops::broadcast_forward(run.kernels, {.kind = kind_,
                                         .a = with_rank(run.inputs[0], rank),
                                         .b = with_rank(run.inputs[1], rank),
                                         .y = run.output});
  }
  void backward(const LayerRun& run) const override {
    const LayerGradients& g = run.gradients;
    const int rank = g.output.shape.rank();
    const auto gradient = [&](std::size_t i) {
      return g.inputs[i] ? with_rank(g.inputs[i], rank) : TensorView{};
    };
    ops::broadcast_backward(run.kernels, {.kind = kind_,
                                          .a = with_rank(run.inputs[0], rank),
                                          .b = with_rank(run.inputs[1], rank),
                                          .dy = g.output,
                                          .da = gradient(0),
                                          .db = gradient(1),
                                          .da_write = g.input_writes[0],
                                          .db_write = g.input_writes[1]});
  }

 private:
  ops::BinaryKind kind_;
};

class Add final : public Binary {
 public:
  Add()
      : Binary({.kind = "add",
                .stores_bf16_on_cpu = true,
                .may_run_in_place = true,
                .extends_texts = true},
               ops::BinaryKind::kAdd) {}

  void forward(const LayerRun& run) const override {
    if (run.inputs[0].shape != run.inputs[1].shape) return Binary::forward(run);
    ops::add_forward(run.kernels, run.inputs[0], run.inputs[1], false, run.output);
  }
  void backward(const LayerRun& run) const override {
    if (run.inputs[0].shape != run.inputs[1].shape) return Binary::backward(run);
    for (std::size_t i = 0; i < 2; ++i) {
      const TensorView to = run.gradients.inputs[i];
      if (to && to.data != run.gradients.output.data)
        ops::copy_or_add(run.kernels, run.gradients.output, to, run.gradients.input_writes[i]);
    }
  }
};

class Subtract final : public Binary {
 public:
  Subtract()
      : Binary({.kind = "subtract", .stores_bf16_on_cpu = true, .extends_texts = true},
               ops::BinaryKind::kSubtract) {}
};

// Whether each channel of `narrow` scales a channel of `wide`; both have the batch.
bool scales_channels(const Shape& wide, const Shape& narrow) {
  if (wide.rank() != 4) return false;
  return narrow == Shape{wide[0], wide[3]} || narrow == Shape{wide[0], 1, 1, wide[3]};
}

class Multiply final : public Binary {
 public:
  Multiply()
      : Binary({.kind = "multiply",
                .backward_needs = {.inputs = true},
                .stores_bf16_on_cpu = true,
                .extends_texts = true},
               ops::BinaryKind::kMultiply) {}

  void forward(const LayerRun& run) const override {
    const int wide = wide_input(run);
    if (wide < 0) return Binary::forward(run);
    ops::multiply_forward(run.kernels,
                          {.a = input(run, wide), .b = input(run, 1 - wide), .y = run.output});
  }
  // The two inputs may be one tensor, whose gradient is then written first for input 0.
  void backward(const LayerRun& run) const override {
    const int wide = wide_input(run);
    if (wide < 0) return Binary::backward(run);
    for (int i = 0; i < 2; ++i) {
      const TensorView& to = run.gradients.inputs[static_cast<std::size_t>(i)];
      if (!to) continue;
      ops::MultiplyBackward o{
          .a = input(run, wide), .b = input(run, 1 - wide), .dy = run.gradients.output};
      (i == wide ? o.da : o.db) = to;
      (i == wide ? o.da_write : o.db_write) =
          run.gradients.input_writes[static_cast<std::size_t>(i)];
      ops::multiply_backward(run.kernels, o);
    }
  }

 private:
  static const TensorView& input(const LayerRun& run, int i) {
    return run.inputs[static_cast<std::size_t>(i)];
  }
  // The input of the output's shape if the other one has it too or scales its channels; -1 if there
  // is none.
  static int wide_input(const LayerRun& run) {
    const Shape &a = run.inputs[0].shape, &b = run.inputs[1].shape;
    if (a == b || scales_channels(a, b)) return 0;
    return scales_channels(b, a) ? 1 : -1;
  }
};

class Divide final : public Binary {
 public:
  Divide()
      : Binary({.kind = "divide",
                .backward_needs = {.inputs = true},
                .stores_bf16_on_cpu = true,
                .extends_texts = true},
               ops::BinaryKind::kDivide) {}
};

}  // namespace

LayerPtr add() { return std::make_unique<Add>(); }
LayerPtr subtract() { return std::make_unique<Subtract>(); }
LayerPtr multiply() { return std::make_unique<Multiply>(); }
LayerPtr divide() { return std::make_unique<Divide>(); }

}  // namespace engine::layers
