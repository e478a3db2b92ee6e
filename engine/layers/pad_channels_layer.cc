// Pads the channels with zeros, for shortcuts into wider blocks.
#include "engine/core/checked.h"
#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"
#include "engine/ops/pool/pad_channels.h"

namespace engine::layers {
namespace {

class PadChannels final : public Layer {
 public:
  PadChannels(std::int64_t before, std::int64_t after)
      : Layer({.kind = "pad_channels",
               .options = {{"before", static_cast<double>(before)},
                           {"after", static_cast<double>(after)}}}),
        before_(before),
        after_(after) {
    expect_at_least("pad_channels", "before", before, 0);
    expect_at_least("pad_channels", "after", after, 0);
  }
  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    expect_rank(inputs[0], 3, "[h, w, c]");
    return {inputs[0][0], inputs[0][1], checked_add(checked_add(before_, inputs[0][2]), after_)};
  }
  bool is_alias(std::span<const Shape>) const override { return before_ + after_ == 0; }

  void forward(const LayerRun& run) const override {
    ops::pad_channels_forward(run.kernels,
                              {.before = before_, .x = run.inputs[0], .y = run.output});
  }
  void backward(const LayerRun& run) const override {
    if (run.gradients.inputs[0])
      ops::pad_channels_backward(run.kernels, {.before = before_,
                                               .dy = run.gradients.output,
                                               .dx = run.gradients.inputs[0],
                                               .write = run.gradients.input_writes[0]});
  }

 private:
  std::int64_t before_, after_;
};

}  // namespace

LayerPtr pad_channels(std::int64_t before, std::int64_t after) {
  return std::make_unique<PadChannels>(before, after);
}

}  // namespace engine::layers
