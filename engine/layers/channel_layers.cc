// Selects and reorders channels, as networks of two branches per block do (ShuffleNet).
#include <string>

#include "engine/core/checked.h"
#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"
#include "engine/ops/pool/copy_channels.h"
#include "engine/ops/pool/pad_channels.h"
#include "engine/ops/pool/shuffle_channels.h"

namespace engine::layers {
namespace {

void expect_channels(const Shape& input) {
  if (input.rank() != 3 && input.rank() != 1)
    throw ShapeError("expected an input of shape [h, w, c] or [c], got " + input.to_string());
}

class SliceChannels final : public Layer {
 public:
  SliceChannels(std::int64_t first, std::int64_t count)
      : Layer({.kind = "slice_channels",
               .options = {{"first", static_cast<double>(first)},
                           {"count", static_cast<double>(count)}}}),
        first_(first),
        count_(count) {
    expect_at_least("slice_channels", "first", first, 0);
    expect_at_least("slice_channels", "count", count, 1);
  }
  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    const Shape& input = inputs[0];
    expect_channels(input);
    const std::int64_t end = checked_add(first_, count_);
    if (end > input.dims().back())
      throw ShapeError("expected at least " + std::to_string(end) + " channels, got " +
                       input.to_string());
    return input.rank() == 1 ? Shape{count_} : Shape{input[0], input[1], count_};
  }

  void forward(const LayerRun& run) const override {
    ops::pad_channels_backward(run.kernels,
                               {.before = first_, .dy = run.inputs[0], .dx = run.output});
  }
  // The other channels have no gradient from here.
  void backward(const LayerRun& run) const override {
    const TensorView &dy = run.gradients.output, &dx = run.gradients.inputs[0];
    if (!dx) return;
    if (run.gradients.input_writes[0] == Write::kAdd)
      ops::copy_channels(run.kernels, {.before = first_, .x = dy, .y = dx, .write = Write::kAdd});
    else
      ops::pad_channels_forward(run.kernels, {.before = first_, .x = dy, .y = dx});
  }

 private:
  std::int64_t first_, count_;
};

class ShuffleChannels final : public Layer {
 public:
  explicit ShuffleChannels(std::int64_t groups)
      : Layer({.kind = "shuffle_channels", .options = {{"groups", static_cast<double>(groups)}}}),
        groups_(groups) {
    expect_at_least("shuffle_channels", "groups", groups, 1);
  }
  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    expect_channels(inputs[0]);
    if (inputs[0].dims().back() % groups_ != 0)
      throw ShapeError("expected a multiple of " + std::to_string(groups_) + " channels, got " +
                       inputs[0].to_string());
    return inputs[0];
  }

  void forward(const LayerRun& run) const override {
    ops::shuffle_channels(run.kernels, {.groups = groups_, .x = run.inputs[0], .y = run.output});
  }
  void backward(const LayerRun& run) const override {
    if (!run.gradients.inputs[0]) return;
    ops::shuffle_channels(run.kernels,
                          {.groups = run.gradients.output.shape.dims().back() / groups_,
                           .x = run.gradients.output,
                           .y = run.gradients.inputs[0],
                           .write = run.gradients.input_writes[0]});
  }

 private:
  std::int64_t groups_;
};

}  // namespace

LayerPtr slice_channels(std::int64_t first, std::int64_t count) {
  return std::make_unique<SliceChannels>(first, count);
}

LayerPtr shuffle_channels(std::int64_t groups) { return std::make_unique<ShuffleChannels>(groups); }

}  // namespace engine::layers
