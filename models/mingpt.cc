// mingpt: pre-norm transformer blocks with learned positions, GELU by tanh, and the token embedding
// as the output layer.
#include "models/mingpt.h"

#include <cmath>
#include <string>

#include "models/chain.h"
#include "models/model_families.h"

namespace models {

namespace layers = engine::layers;

namespace {

constexpr double kDeviation = 0.02;  // standard deviation of initial weights

constexpr GptSize kNano{.layers = 4, .heads = 4, .width = 128},
    kMini{.layers = 6, .heads = 6, .width = 192}, kGpt2{.layers = 12, .heads = 12, .width = 768};

struct TransformerBlock {
  const GptOptions& options;
  std::string name;  // "transformer.h.0"

  engine::LayerPtr projection(std::int64_t out) const {
    return layers::dense({.out = out, .deviation = kDeviation});
  }
  // The layer that ends a branch: 2 * layers branches are summed, so its initial weights are scaled
  // down.
  engine::LayerPtr last_projection() const {
    const double branches = 2 * static_cast<double>(options.size.layers);
    return layers::dense(
        {.out = options.size.width, .deviation = kDeviation / std::sqrt(branches)});
  }

  void append_to(Chain& x) const {
    const std::int64_t width = options.size.width;
    const Chain before_attention = x;
    x.then(name + ".ln_1", layers::layer_norm())
        .then(name + ".attn.c_attn", projection(3 * width))
        .then(name + ".attn", layers::causal_self_attention(options.size.heads, options.dropout))
        .then(name + ".attn.c_proj", last_projection())
        .then(name + ".attn.resid_dropout", layers::dropout(options.dropout))
        .add(before_attention);
    const Chain before_mlp = x;
    x.then(name + ".ln_2", layers::layer_norm())
        .then(name + ".mlp.c_fc", projection(4 * width))
        .then(name + ".mlp.act", layers::gelu(engine::ops::GeluKind::kTanh))
        .then(name + ".mlp.c_proj", last_projection())
        .then(name + ".mlp.dropout", layers::dropout(options.dropout))
        .add(before_mlp);
  }
};

engine::Graph build_preset(const GptSize& size, const ModelOptions& options) {
  if (options.sample_shape.rank() != 1)
    throw engine::ModelError("this model reads token ids, [context], not samples of shape " +
                             options.sample_shape.to_string() +
                             ": use a data set of text or tokens, or --dataset synthetic "
                             "--synthetic-shape N");
  return build_gpt({.size = size,
                    .vocabulary = options.classes,
                    .context = options.sample_shape[0],
                    .dropout = options.dropout,
                    .label_smoothing = options.label_smoothing});
}

}  // namespace

engine::Graph build_gpt(const GptOptions& options) {
  engine::Graph graph;
  const Ends ends = begin_token_model(
      graph, options.positions > 0 ? options.positions : options.context, options.label_smoothing);
  Chain x(graph, ends.input);
  x.then("transformer.wte", layers::embedding(options.vocabulary, options.size.width, kDeviation));
  const engine::NodeId tokens = x.at();
  x.then("transformer.wpe", layers::position_embedding(options.context, kDeviation))
      .then("transformer.drop", layers::dropout(options.dropout));
  for (std::int64_t i = 0; i < options.size.layers; ++i)
    TransformerBlock{options, "transformer.h." + std::to_string(i)}.append_to(x);
  x.then("transformer.ln_f", layers::layer_norm());
  end_classifier(
      graph, ends,
      graph.add_tied("lm_head", layers::dense(options.vocabulary, false), {x.at()}, tokens));
  return graph;
}

std::optional<GptSize> gpt_size(const std::string& name) {
  if (name == "mingpt" || name == "gpt-nano") return kNano;
  if (name == "gpt-mini") return kMini;
  if (name == "gpt2") return kGpt2;
  return std::nullopt;
}

engine::Graph build_gpt_nano(const ModelOptions& options) { return build_preset(kNano, options); }
engine::Graph build_gpt_mini(const ModelOptions& options) { return build_preset(kMini, options); }
engine::Graph build_gpt2(const ModelOptions& options) { return build_preset(kGpt2, options); }

}  // namespace models
