// Self-attention, causal or not, on the fused queries, keys and values. It saves the log-sum-exp of
// each row.
#include "engine/ops/attention/attention.h"

#include <string>

#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/extension/attention_extend.h"

namespace engine::layers {
namespace {

constexpr const char* kind_of(bool causal) {
  return causal ? "causal_self_attention" : "self_attention";
}

class SelfAttention final : public Layer {
 public:
  SelfAttention(const AttentionOptions& options, bool causal)
      : Layer({.kind = kind_of(causal),
               .options = {{"heads", static_cast<double>(options.heads)},
                           {"kv_heads", static_cast<double>(options.kv_heads)}},
               .backward_needs = {.inputs = true, .output = true},
               .extends_texts = causal}),
        causal_(causal),
        counts_(expect_heads(kind_of(causal), options.heads, options.kv_heads)),
        head_size_(options.head_size),
        dropout_(options.dropout) {
    expect_at_least(kind_of(causal), "head_size", head_size_, 0);
    if (!(dropout_ >= 0 && dropout_ < 1))
      throw ModelError(std::string(kind_of(causal)) + ": dropout must lie in [0, 1), not " +
                       std::to_string(dropout_));
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    const std::int64_t size = expect_head_size(inputs[0], counts_);
    if (head_size_ != 0 && head_size_ != size)
      throw ShapeError("expected heads of " + std::to_string(head_size_) + ", got " +
                       std::to_string(size) + " from " + inputs[0].to_string());
    return {inputs[0][0], counts_.heads * size};
  }
  LayerMemory memory(const MemoryRequest& r) const override {
    const Shape &qkv = r.inputs[0], y = output_shape(r.inputs);
    return {.saved = static_cast<std::size_t>(r.batch * counts_.heads * qkv[0]) *
                     size_of(ops::wide_dtype(r.dtype)),
            .scratch = ops::attention_scratch_bytes(
                {r.batch, qkv[0], y[1], counts_.heads, r.dtype, r.threads, r.device, r.products}),
            .kept_per_position =
                static_cast<std::size_t>(2 * counts_.kv_heads * (qkv[1] / counts_.all())) *
                size_of(r.dtype)};
  }

  void forward(const LayerRun& run) const override {
    if (!run.earlier.counts.empty()) return extend(run);
    ops::attention_forward(run.kernels,
                           {.qkv = run.inputs[0],
                            .heads = counts_.heads,
                            .kv_heads = counts_.kv_heads,
                            .causal = causal_,
                            .dropout = run.training ? dropout(run) : ops::AttentionDropout{},
                            .y = run.output,
                            .lse = run.training ? saved(run) : TensorView{}});
  }
  void backward(const LayerRun& run) const override {
    if (run.gradients.inputs[0])
      ops::attention_backward(run.kernels, {.qkv = run.inputs[0],
                                            .heads = counts_.heads,
                                            .kv_heads = counts_.kv_heads,
                                            .causal = causal_,
                                            .dropout = dropout(run),
                                            .y = run.output,
                                            .lse = saved(run),
                                            .dy = run.gradients.output,
                                            .dqkv = run.gradients.inputs[0],
                                            .write = run.gradients.input_writes[0]});
  }

 private:
  void extend(const LayerRun& run) const {
    TensorView kept = run.output;
    kept.data = run.earlier.kept.data();
    kept.shape = {run.output.shape[0], 2 * counts_.kv_heads, run.earlier.capacity,
                  run.output.shape[2] / counts_.heads};
    ops::causal_attention_extend(run.kernels, {.qkv = run.inputs[0],
                                               .heads = counts_.heads,
                                               .kv_heads = counts_.kv_heads,
                                               .earlier = run.earlier.counts,
                                               .kept = kept,
                                               .y = run.output});
  }
  ops::AttentionDropout dropout(const LayerRun& run) const {
    return {dropout_, run.random.key, run.random.epoch, run.random.sample_ids};
  }
  TensorView saved(const LayerRun& run) const {
    TensorView view = run.output;
    view.shape = {run.output.shape[0], counts_.heads, run.output.shape[1]};
    view.dtype = ops::wide_dtype(view.dtype);
    view.data = run.saved.data();
    return view;
  }

  bool causal_;
  HeadCounts counts_;
  std::int64_t head_size_;  // 0: what the input has
  double dropout_;
};

}  // namespace

LayerPtr causal_self_attention(const AttentionOptions& options) {
  return std::make_unique<SelfAttention>(options, true);
}
LayerPtr causal_self_attention(std::int64_t heads, double dropout) {
  return causal_self_attention({.heads = heads, .dropout = dropout});
}

LayerPtr self_attention(const AttentionOptions& options) {
  return std::make_unique<SelfAttention>(options, false);
}

}  // namespace engine::layers
