// Reorders channels, as networks of two branches per block do (ShuffleNet).
#include <string>

#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"
#include "engine/ops/pool/shuffle_channels.h"

namespace engine::layers {
namespace {

void expect_channels(const Shape& input) {
  if (input.rank() != 3 && input.rank() != 1)
    throw ShapeError("expected an input of shape [h, w, c] or [c], got " + input.to_string());
}

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

LayerPtr shuffle_channels(std::int64_t groups) { return std::make_unique<ShuffleChannels>(groups); }

}  // namespace engine::layers
