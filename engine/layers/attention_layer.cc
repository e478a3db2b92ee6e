// Causal self-attention on the fused queries, keys and values. It saves the log-sum-exp of each
// row.
#include "engine/ops/attention/attention.h"

#include <string>

#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"
#include "engine/ops/common/operand_checks.h"

namespace engine::layers {
namespace {

class CausalSelfAttention final : public Layer {
 public:
  CausalSelfAttention(std::int64_t heads, double dropout)
      : Layer({.kind = "causal_self_attention",
               .options = {{"heads", static_cast<double>(heads)}},
               .backward_needs = {.inputs = true, .output = true}}),
        heads_(heads),
        dropout_(dropout) {
    expect_at_least("causal_self_attention", "heads", heads, 1);
    if (!(dropout >= 0 && dropout < 1))
      throw ModelError("causal_self_attention: dropout must lie in [0, 1), not " +
                       std::to_string(dropout));
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    expect_rank(inputs[0], 2, "[positions, 3 * width]");
    if (inputs[0][1] % (3 * heads_) != 0)
      throw ShapeError("expected [positions, 3 * width] with a width that " +
                       std::to_string(heads_) + " heads divide, got " + inputs[0].to_string());
    return {inputs[0][0], inputs[0][1] / 3};
  }
  LayerMemory memory(const MemoryRequest& r) const override {
    const Shape& qkv = r.inputs[0];
    return {.saved = static_cast<std::size_t>(r.batch * heads_ * qkv[0]) *
                     size_of(ops::wide_dtype(r.dtype)),
            .scratch = ops::attention_scratch_bytes(
                {r.batch, qkv[0], qkv[1] / 3, heads_, r.dtype, r.threads, r.device, r.products})};
  }

  void forward(const LayerRun& run) const override {
    ops::causal_attention_forward(run.kernels,
                                  {.qkv = run.inputs[0],
                                   .heads = heads_,
                                   .dropout = run.training ? dropout(run) : ops::AttentionDropout{},
                                   .y = run.output,
                                   .lse = run.training ? saved(run) : TensorView{}});
  }
  void backward(const LayerRun& run) const override {
    if (run.gradients.inputs[0])
      ops::causal_attention_backward(run.kernels, {.qkv = run.inputs[0],
                                                   .heads = heads_,
                                                   .dropout = dropout(run),
                                                   .y = run.output,
                                                   .lse = saved(run),
                                                   .dy = run.gradients.output,
                                                   .dqkv = run.gradients.inputs[0],
                                                   .write = run.gradients.input_writes[0]});
  }

 private:
  ops::AttentionDropout dropout(const LayerRun& run) const {
    return {dropout_, run.random.key, run.random.epoch, run.random.sample_ids};
  }
  TensorView saved(const LayerRun& run) const {
    TensorView view = run.output;
    view.shape = {run.output.shape[0], heads_, run.output.shape[1]};
    view.dtype = ops::wide_dtype(view.dtype);
    view.data = run.saved.data();
    return view;
  }

  std::int64_t heads_;
  double dropout_;
};

}  // namespace

LayerPtr causal_self_attention(std::int64_t heads, double dropout) {
  return std::make_unique<CausalSelfAttention>(heads, dropout);
}

}  // namespace engine::layers
