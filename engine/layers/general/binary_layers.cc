// Sums, differences, products, quotients and comparisons of two tensors, expanded to a common
// shape, and choices between two. Sums of one shape, and products of one shape or with a vector of
// channels (squeeze and excitation; Hu et al., 2018), have kernels of their own.
#include <algorithm>
#include <array>
#include <string>

#include "engine/layers/general/general_layers.h"
#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/elementwise/multiply.h"
#include "engine/ops/general/broadcast.h"

namespace engine::layers {
namespace {

// Expands `to` by the extents of another input; false if they do not fit.
bool expand(Shape& to, const Shape& by) {
  const Shape shorter = to.rank() >= by.rank() ? by : to;
  if (by.rank() > to.rank()) to = by;
  const int more = to.rank() - shorter.rank();
  for (int d = 0; d < shorter.rank(); ++d) {
    std::int64_t& extent = to[d + more];
    if (extent != shorter[d] && extent != 1 && shorter[d] != 1) return false;
    extent = std::max(extent, shorter[d]);
  }
  return true;
}

Shape expanded_shape(std::span<const Shape> inputs, const char* count) {
  Shape output = inputs[0];
  std::string texts = output.to_string();
  bool fits = true;
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    fits = fits && expand(output, inputs[i]);
    texts += (i + 1 < inputs.size() ? ", " : " and ") + inputs[i].to_string();
  }
  if (!fits)
    throw ShapeError(std::string("expected ") + count +
                     " inputs whose extents, from the last on, are equal or 1, got " + texts);
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

// Returns the gradient of input i with the rank of the output's; empty if it is not wanted.
TensorView gradient_of(const LayerGradients& g, std::size_t i) {
  return g.inputs[i] ? with_rank(g.inputs[i], g.output.shape.rank()) : TensorView{};
}

class Binary : public Layer {
 public:
  Binary(LayerTraits traits, ops::BinaryKind kind) : Layer(std::move(traits)), kind_(kind) {}

  Shape output_shape(std::span<const Shape> inputs) const final {
    expect_inputs(inputs, 2);
    return expanded_shape(inputs, "two");
  }

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
    ops::broadcast_backward(run.kernels, {.kind = kind_,
                                          .a = with_rank(run.inputs[0], rank),
                                          .b = with_rank(run.inputs[1], rank),
                                          .dy = g.output,
                                          .da = gradient_of(g, 0),
                                          .db = gradient_of(g, 1),
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

// Writes the gradient of an input that changes nothing continuously.
void zero_gradient(const LayerRun& run, std::size_t input) {
  const LayerGradients& g = run.gradients;
  if (g.inputs[input] && g.input_writes[input] == Write::kOverwrite)
    ops::zero(run.kernels, g.inputs[input]);
}

// a < b is b > a.
class Compare final : public Layer {
 public:
  explicit Compare(CompareFunction function)
      : Layer({.kind = "compare",
               .options = {{"function", static_cast<double>(function)}},
               .stores_bf16_on_cpu = true,
               .extends_texts = true}),
        function_(function) {}

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 2);
    return expanded_shape(inputs, "two");
  }
  void forward(const LayerRun& run) const override {
    const bool swaps =
        function_ == CompareFunction::kLess || function_ == CompareFunction::kLessEqual;
    const int rank = run.output.shape.rank();
    ops::broadcast_forward(run.kernels, {.kind = kernel_kind(),
                                         .a = with_rank(run.inputs[swaps ? 1 : 0], rank),
                                         .b = with_rank(run.inputs[swaps ? 0 : 1], rank),
                                         .y = run.output});
  }
  void backward(const LayerRun& run) const override {
    zero_gradient(run, 0);
    zero_gradient(run, 1);
  }

 private:
  ops::BinaryKind kernel_kind() const {
    const bool is_strict =
        function_ == CompareFunction::kGreater || function_ == CompareFunction::kLess;
    if (function_ == CompareFunction::kEqual) return ops::BinaryKind::kEqual;
    return is_strict ? ops::BinaryKind::kGreater : ops::BinaryKind::kGreaterEqual;
  }

  CompareFunction function_;
};

class Where final : public Layer {
 public:
  Where()
      : Layer({.kind = "where",
               .backward_needs = {.inputs = true},
               .stores_bf16_on_cpu = true,
               .extends_texts = true}) {}

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 3);
    return expanded_shape(inputs, "three");
  }
  void forward(const LayerRun& run) const override {
    const int rank = run.output.shape.rank();
    ops::choose_forward(run.kernels, {.condition = with_rank(run.inputs[0], rank),
                                      .a = with_rank(run.inputs[1], rank),
                                      .b = with_rank(run.inputs[2], rank),
                                      .y = run.output});
  }
  // The condition may also be one of the values; its gradient of 0 is then written first.
  void backward(const LayerRun& run) const override {
    const LayerGradients& g = run.gradients;
    const int rank = g.output.shape.rank();
    zero_gradient(run, 0);
    ops::choose_backward(run.kernels, {.condition = with_rank(run.inputs[0], rank),
                                       .dy = g.output,
                                       .da = gradient_of(g, 1),
                                       .db = gradient_of(g, 2),
                                       .da_write = g.input_writes[1],
                                       .db_write = g.input_writes[2]});
  }
};

}  // namespace

LayerPtr add() { return std::make_unique<Add>(); }
LayerPtr subtract() { return std::make_unique<Subtract>(); }
LayerPtr multiply() { return std::make_unique<Multiply>(); }
LayerPtr divide() { return std::make_unique<Divide>(); }
LayerPtr compare(CompareFunction function) { return std::make_unique<Compare>(function); }
LayerPtr where() { return std::make_unique<Where>(); }

}  // namespace engine::layers
