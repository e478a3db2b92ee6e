// One function per family. Names of parameters are those of the files, except that queries, keys
// and values of the Llama family, three tensors there, are one matrix here: qkv_proj.
#include "models/published/published_layers.h"

#include <algorithm>
#include <initializer_list>

#include "io/base/text/text_parts.h"

namespace models {
namespace {

std::string quoted(const std::string& text) { return "\"" + text + "\""; }
std::string option(const char* key, const std::string& value) {
  return std::string(key) + " = " + value + "\n";
}
std::string option(const char* key, std::int64_t value) {
  return option(key, std::to_string(value));
}
std::string option(const char* key, double value) {
  return option(key, base::shortest_text(value));
}
std::string flag(const char* key, bool value) { return option(key, value ? "true" : "false"); }

// Adds layers one after another. Every layer has a name, which later ones may read.
class LayerWriter {
 public:
  explicit LayerWriter(const PublishedConfig& config) : config_(config) {
    // A default for runs without data; longer samples are as good for a model without a table of
    // positions.
    constexpr std::int64_t kMaxDefault = 1024;
    result_.definition = "sample_shape = [" +
                         std::to_string(std::min(config.context, kMaxDefault)) +
                         "]\nclasses = " + std::to_string(config.vocabulary) +
                         "\nconfig_json = " + toml_string(config.text) + "\n";
  }

  void add(const char* kind, const std::string& name, const std::string& options = "",
           std::initializer_list<std::string> inputs = {}) {
    std::string& text = result_.definition;
    text += "\n[[layer]]\nkind = " + quoted(kind) + "\nname = " + quoted(name) + "\n";
    std::string list;
    for (const std::string& from : inputs) list += (list.empty() ? "" : ", ") + quoted(from);
    if (!list.empty()) text += "inputs = [" + list + "]\n";
    text += options;
    last_ = name;
  }
  // The sum of the last layer and an earlier one.
  void add_residual(const std::string& name, const std::string& earlier) {
    const std::string last = last_;
    add("add", name, "", {earlier, last});
  }

  void dense(const std::string& name, std::int64_t in, std::int64_t out, bool bias,
             std::initializer_list<std::string> inputs = {}) {
    add("dense", name, option("out", out) + flag("bias", bias), inputs);
    matrix(name, in, out, bias);
  }
  // GPT-2's, whose file has the transposed matrix.
  void conv1d(const std::string& name, std::int64_t in, std::int64_t out) {
    add("dense", name, option("out", out));
    array(name + ".weight", {in, out});
    result_.arrays.back().transposed = true;
    array(name + ".bias", {out});
  }
  // One layer of several tensors, each with its number of outputs.
  void fused(const std::string& name, std::int64_t in, bool bias,
             std::initializer_list<std::pair<std::string, std::int64_t>> parts) {
    std::int64_t out = 0;
    PublishedArray weight{.name = name + ".weight"}, biases{.name = name + ".bias"};
    for (const auto& [part, rows] : parts) {
      out += rows;
      weight.stored.push_back({part + ".weight", {rows, in}});
      biases.stored.push_back({part + ".bias", {rows}});
    }
    add("dense", name, option("out", out) + flag("bias", bias));
    result_.arrays.push_back(std::move(weight));
    if (bias) result_.arrays.push_back(std::move(biases));
  }
  void layer_norm(const std::string& name) {
    add("layer_norm", name, option("eps", config_.eps));
    array(name + ".weight", {config_.width});
    array(name + ".bias", {config_.width});
  }
  void rms_norm(const std::string& name) {
    add("rms_norm", name, option("eps", config_.eps));
    array(name + ".weight", {config_.width});
  }
  void embedding(const std::string& name) {
    add("embedding", name,
        option("vocabulary", config_.vocabulary) + option("width", config_.width) +
            option("deviation", 0.02));
    array(name + ".weight", {config_.vocabulary, config_.width});
  }
  void array(const std::string& name, std::vector<std::int64_t> shape) {
    result_.arrays.push_back({.name = name, .stored = {{name, std::move(shape)}}});
  }
  // The output layer, whose matrix is the embedding's if the model ties them.
  PublishedLayers finish(const std::string& embedding) {
    if (config_.tied)
      add("dense", "lm_head",
          option("out", config_.vocabulary) + flag("bias", false) +
              option("tied", quoted(embedding)));
    else
      dense("lm_head", config_.width, config_.vocabulary, false);
    return std::move(result_);
  }

  const std::string& last() const { return last_; }

 private:
  void matrix(const std::string& name, std::int64_t in, std::int64_t out, bool bias) {
    array(name + ".weight", {out, in});
    if (bias) array(name + ".bias", {out});
  }
  // The text is JSON in ASCII without control characters.
  static std::string toml_string(const std::string& json) {
    std::string text = "\"";
    for (const char c : json) {
      if (c == '"' || c == '\\') text += '\\';
      text += c;
    }
    return text + "\"";
  }

  const PublishedConfig& config_;
  PublishedLayers result_;
  std::string last_;
};

PublishedLayers gpt2_layers(const PublishedConfig& config) {
  LayerWriter x(config);
  const std::int64_t width = config.width;
  x.embedding("transformer.wte");
  x.add("position_embedding", "transformer.wpe",
        option("context", config.context) + option("deviation", 0.02));
  x.array("transformer.wpe.weight", {config.context, width});
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string block = "transformer.h." + std::to_string(i);
    const std::string input = x.last();
    x.layer_norm(block + ".ln_1");
    x.conv1d(block + ".attn.c_attn", width, 3 * width);
    x.add("causal_self_attention", block + ".attn", option("heads", config.heads));
    x.conv1d(block + ".attn.c_proj", width, width);
    x.add_residual(block + ".attn.sum", input);
    const std::string middle = x.last();
    x.layer_norm(block + ".ln_2");
    x.conv1d(block + ".mlp.c_fc", width, config.inner);
    x.add("gelu", block + ".mlp.act", option("approximate", quoted(config.activation)));
    x.conv1d(block + ".mlp.c_proj", config.inner, width);
    x.add_residual(block + ".mlp.sum", middle);
  }
  x.layer_norm("transformer.ln_f");
  return x.finish("transformer.wte");
}

std::string rotation_options(const PublishedRotation& rotation) {
  std::string options = option("theta", rotation.theta);
  if (rotation.factor != 1)
    options += option("factor", rotation.factor) + option("low_factor", rotation.low_factor) +
               option("high_factor", rotation.high_factor) +
               option("original_context", rotation.original_context);
  return options;
}

void llama_attention(LayerWriter& x, const PublishedConfig& config, const std::string& name) {
  const std::int64_t queries = config.heads * config.head_size,
                     keys = config.kv_heads * config.head_size;
  const std::string heads = option("heads", config.heads) + option("kv_heads", config.kv_heads);
  x.fused(name + ".qkv_proj", config.width, config.biases.qkv,
          {{name + ".q_proj", queries}, {name + ".k_proj", keys}, {name + ".v_proj", keys}});
  if (config.head_norms) {
    x.add("head_rms_norm", name, heads + option("eps", config.eps));
    x.array(name + ".q_norm.weight", {config.head_size});
    x.array(name + ".k_norm.weight", {config.head_size});
  }
  x.add("rotary", name + ".rotary", heads + rotation_options(config.rotation));
  x.add("causal_self_attention", name + ".attention",
        heads + option("head_size", config.head_size));
  x.dense(name + ".o_proj", queries, config.width, config.biases.output);
}

PublishedLayers llama_layers(const PublishedConfig& config) {
  LayerWriter x(config);
  x.embedding("model.embed_tokens");
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string block = "model.layers." + std::to_string(i);
    const std::string input = x.last();
    x.rms_norm(block + ".input_layernorm");
    llama_attention(x, config, block + ".self_attn");
    x.add_residual(block + ".attention_sum", input);
    const std::string middle = x.last(), norm = block + ".post_attention_layernorm";
    x.rms_norm(norm);
    x.dense(block + ".mlp.gate_proj", config.width, config.inner, config.biases.mlp);
    x.add("activation", block + ".mlp.act_fn", option("function", quoted("silu")));
    x.dense(block + ".mlp.up_proj", config.width, config.inner, config.biases.mlp, {norm});
    x.add("multiply", block + ".mlp.product", "", {block + ".mlp.act_fn", block + ".mlp.up_proj"});
    x.dense(block + ".mlp.down_proj", config.inner, config.width, config.biases.mlp);
    x.add_residual(block + ".mlp_sum", middle);
  }
  x.rms_norm("model.norm");
  return x.finish("model.embed_tokens");
}

}  // namespace

PublishedLayers published_layers(const PublishedConfig& config) {
  return config.family == PublishedFamily::kGpt2 ? gpt2_layers(config) : llama_layers(config);
}

}  // namespace models
