// Rotary position embedding of the queries and keys of a fused projection, in place if
// possible.
#include <cmath>
#include <string>

#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"

namespace engine::layers {
namespace {

constexpr const char* kKind = "rotary";

void expect_frequencies(const ops::RotaryFrequencies& f) {
  const auto above = [](const char* option, double value, double least) {
    if (!(value > least && std::isfinite(value)))
      throw ModelError(std::string(kKind) + ": " + option + " must be above " +
                       std::to_string(least) + ", not " + std::to_string(value));
  };
  above("theta", f.theta, 0);
  above("factor", f.factor, 0);
  above("low_factor", f.low_factor, 0);
  above("high_factor", f.high_factor, f.low_factor);
  above("original_context", f.original_context, 0);
}

class RotaryLayer final : public Layer {
 public:
  explicit RotaryLayer(const RotaryOptions& options)
      : Layer({.kind = kKind,
               .options = {{"heads", static_cast<double>(options.heads)},
                           {"kv_heads", static_cast<double>(options.kv_heads)},
                           {"theta", options.frequencies.theta},
                           {"factor", options.frequencies.factor},
                           {"low_factor", options.frequencies.low_factor},
                           {"high_factor", options.frequencies.high_factor},
                           {"original_context", options.frequencies.original_context}},
               .may_run_in_place = true,
               .extends_texts = true}),
        counts_(expect_heads(kKind, options.heads, options.kv_heads)),
        frequencies_(options.frequencies) {
    expect_frequencies(frequencies_);
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    const std::int64_t size = expect_head_size(inputs[0], counts_);
    if (size % 2 != 0 || size > ops::kMaxRotarySize)
      throw ShapeError("expected heads of an even size of at most " +
                       std::to_string(ops::kMaxRotarySize) + ", got " + std::to_string(size));
    return inputs[0];
  }
  LayerMemory memory(const MemoryRequest& r) const override {
    const Shape& x = r.inputs[0];
    return {.scratch = ops::rotary_scratch_bytes(x[0], x[1] / counts_.all(), r.device)};
  }

  void forward(const LayerRun& run) const override {
    rotate(run, {.x = run.inputs[0], .y = run.output, .first_positions = run.earlier.counts});
  }
  void backward(const LayerRun& run) const override {
    if (run.gradients.inputs[0])
      rotate(run, {.x = run.gradients.output,
                   .y = run.gradients.inputs[0],
                   .back = true,
                   .write = run.gradients.input_writes[0]});
  }

 private:
  // Adds what the layer knows: heads, their size and the frequencies.
  void rotate(const LayerRun& run, ops::Rotary o) const {
    o.heads = counts_.heads + counts_.kv_heads;
    o.size = o.x.shape[2] / counts_.all();
    o.frequencies = frequencies_;
    ops::rotary(run.kernels, o);
  }

  HeadCounts counts_;
  ops::RotaryFrequencies frequencies_;
};

}  // namespace

LayerPtr rotary(const RotaryOptions& options) { return std::make_unique<RotaryLayer>(options); }

}  // namespace engine::layers
