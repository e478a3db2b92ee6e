// Layers whose output has the shape of their input: relu and dropout.
#include <string>

#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"
#include "engine/ops/elementwise/elementwise.h"

namespace engine::layers {
namespace {

class Relu final : public Layer {
 public:
  Relu()
      : Layer({.kind = "relu",
               .backward_needs = {.output = true},
               .stores_bf16_on_cpu = true,
               .may_run_in_place = true,
               .extends_texts = true}) {}
  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    return inputs[0];
  }

  void forward(const LayerRun& run) const override {
    ops::relu_forward(run.kernels, run.inputs[0], run.output);
  }
  void backward(const LayerRun& run) const override {
    if (run.gradients.inputs[0])
      ops::relu_backward(run.kernels, run.output, run.gradients.output, run.gradients.inputs[0],
                         run.gradients.input_writes[0]);
  }
};

// Saves nothing: backward draws the same random numbers again.
class Dropout final : public Layer {
 public:
  explicit Dropout(double rate)
      : Layer({.kind = "dropout", .stores_bf16_on_cpu = true, .extends_texts = true}), rate_(rate) {
    if (!(rate >= 0 && rate < 1))
      throw ModelError("dropout: rate must lie in [0, 1), not " + std::to_string(rate));
  }
  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    return inputs[0];
  }
  bool is_alias(std::span<const Shape>) const override { return rate_ == 0; }

  void forward(const LayerRun& run) const override {
    if (run.training)
      ops::dropout(run.kernels, {.from = run.inputs[0],
                                 .rate = rate_,
                                 .key = run.random.key,
                                 .epoch = run.random.epoch,
                                 .sample_ids = run.random.sample_ids,
                                 .to = run.output});
    else
      ops::copy_or_add(run.kernels, run.inputs[0], run.output, Write::kOverwrite);
  }
  void backward(const LayerRun& run) const override {
    if (run.gradients.inputs[0])
      ops::dropout(run.kernels, {.from = run.gradients.output,
                                 .rate = rate_,
                                 .key = run.random.key,
                                 .epoch = run.random.epoch,
                                 .sample_ids = run.random.sample_ids,
                                 .to = run.gradients.inputs[0],
                                 .write = run.gradients.input_writes[0]});
  }

 private:
  double rate_;
};

}  // namespace

LayerPtr relu() { return std::make_unique<Relu>(); }
LayerPtr dropout(double rate) { return std::make_unique<Dropout>(rate); }

}  // namespace engine::layers
