// Each family has a function that reads its keys with the defaults of its class in `transformers`.
#include "models/published/published_config.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/core/error.h"
#include "io/base/formats/nesting.h"
#include "io/base/text/escape_text.h"
#include "io/base/text/nearest.h"
#include "io/base/text/text_parts.h"
#include "models/published/published_settings.h"

namespace models {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kDefaultWindow = 4096;                 // if sliding_window is missing
constexpr std::int64_t kSlidingFrom = 28;                     // if max_window_layers is missing
constexpr double kTiny = std::numeric_limits<double>::min();  // the least number above 0
constexpr std::int64_t kMaxLayers = 500;                      // a list of layers has at most 10,000

// Settings that a config.json may lack have the defaults of the class in `transformers`.
struct ModelDefaults {
  std::int64_t vocabulary, width, layers, heads, context;
  std::int64_t inner = 0;      // 0: 4 * width
  std::int64_t kv_heads = 0;   // 0: heads
  std::int64_t head_size = 0;  // 0: width / heads
  double eps;
  std::int64_t end = -1;  // eos_token_id; -1: none
  bool tied = false;      // tie_word_embeddings
};

struct ModelType {
  const char *name, *architecture;
  PublishedFamily family;
  ModelDefaults defaults;
};

constexpr ModelType kTypes[] = {
    {"gpt2",
     "GPT2LMHeadModel",
     PublishedFamily::kGpt2,
     {.vocabulary = 50257,
      .width = 768,
      .layers = 12,
      .heads = 12,
      .context = 1024,
      .eps = 1e-5,
      .end = 50256,
      .tied = true}},
    {"llama",
     "LlamaForCausalLM",
     PublishedFamily::kLlama,
     {.vocabulary = 32000,
      .width = 4096,
      .layers = 32,
      .heads = 32,
      .context = 2048,
      .inner = 11008,
      .eps = 1e-6,
      .end = 2}},
    {"mistral",
     "MistralForCausalLM",
     PublishedFamily::kLlama,
     {.vocabulary = 32000,
      .width = 4096,
      .layers = 32,
      .heads = 32,
      .context = 131072,
      .inner = 14336,
      .kv_heads = 8,
      .eps = 1e-6,
      .end = 2}},
    {"qwen2",
     "Qwen2ForCausalLM",
     PublishedFamily::kLlama,
     {.vocabulary = 151936,
      .width = 4096,
      .layers = 32,
      .heads = 32,
      .context = 32768,
      .inner = 22016,
      .kv_heads = 32,
      .eps = 1e-6}},
    {"qwen3",
     "Qwen3ForCausalLM",
     PublishedFamily::kLlama,
     {.vocabulary = 151936,
      .width = 4096,
      .layers = 32,
      .heads = 32,
      .context = 32768,
      .inner = 22016,
      .kv_heads = 32,
      .head_size = 128,
      .eps = 1e-6}},
};

// Returns the default for a key that is missing. A null is a missing number, as in the class.
std::int64_t size_in(const Settings& settings, const char* key, std::int64_t otherwise,
                     std::int64_t max = kMaxExtent) {
  return settings.json().contains(key) ? settings.integer(key, {}, max) : otherwise;
}

void note_dropout(const Settings& settings, std::initializer_list<const char*> keys,
                  double otherwise, PublishedConfig& config) {
  std::string found;
  for (const char* key : keys)
    if (const double rate = settings.number(key, otherwise, 0, "from 0"); rate > 0)
      found += (found.empty() ? "" : ", ") + std::string(key) + " " + base::shortest_text(rate);
  if (!found.empty()) config.notes.push_back("dropout of config.json is left out (" + found + ")");
}

void read_gpt2(const Settings& settings, const ModelDefaults& defaults, PublishedConfig& config) {
  const char* const heads = settings.key_of("n_head", "num_attention_heads");
  const char* const positions = settings.key_of("n_positions", "max_position_embeddings");
  config.layers = size_in(settings, settings.key_of("n_layer", "num_hidden_layers"),
                          defaults.layers, kMaxLayers);
  config.width = size_in(settings, settings.key_of("n_embd", "hidden_size"), defaults.width);
  config.heads = size_in(settings, heads, defaults.heads);
  config.context =
      size_in(settings, settings.has("n_ctx") && !settings.has(positions) ? "n_ctx" : positions,
              defaults.context);
  config.inner = settings.integer("n_inner", 4 * config.width);
  config.eps = settings.number("layer_norm_epsilon", defaults.eps, kTiny, "above 0");
  const std::string activation = settings.text("activation_function", "gelu_new");
  if (activation == "gelu_new" || activation == "gelu_pytorch_tanh")
    config.activation = "tanh";
  else if (activation == "gelu")
    config.activation = "none";
  else
    settings.refuse("activation_function", "gelu_new, gelu_pytorch_tanh and gelu");
  settings.only("scale_attn_weights", true, "true");
  settings.only("scale_attn_by_inverse_layer_idx", false, "false");
  settings.only("add_cross_attention", false, "false");
  if (config.width % config.heads != 0)
    settings.refuse(heads, "a divisor of n_embd, " + std::to_string(config.width));
  config.kv_heads = config.heads;
  config.head_size = config.width / config.heads;
  note_dropout(settings, {"resid_pdrop", "embd_pdrop", "attn_pdrop"}, 0.1, config);
}

void read_scaling(const Settings& scaling, PublishedRotation& rotation) {
  const char* const above = "above 0";
  const char* const kinds[] = {"rope_type", "type"};  // newer files, older ones
  const char* const key = scaling.has(kinds[0]) ? kinds[0] : kinds[1];
  const std::string type = scaling.text(key, "default");
  if (scaling.text(kinds[1], type) != type)
    scaling.refuse(kinds[1], "the same as rope_type, " + type);
  for (const auto& [name, value] : scaling.json().items()) {
    if (value.is_object()) scaling.refuse(name.c_str(), "one rotation for all layers");
    if (!scaling.has(key) && name != "rope_theta" && name != "partial_rotary_factor")
      scaling.refuse(kinds[0], "default and llama3");
  }
  if (type == "default") return;
  if (type != "llama3") scaling.refuse(key, "default and llama3");
  rotation.factor = scaling.number("factor", 0, kTiny, above);
  rotation.low_factor = scaling.number("low_freq_factor", 0, kTiny, above);
  rotation.high_factor = scaling.number("high_freq_factor", 0, kTiny, above);
  rotation.original_context = scaling.number("original_max_position_embeddings", 0, kTiny, above);
  for (const char* needed :
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"})
    if (!scaling.has(needed)) scaling.refuse(needed, "a number above 0");
}

// Up to version 4 of `transformers` at the top and in rope_scaling, then in rope_parameters.
PublishedRotation read_rotation(const Settings& settings) {
  PublishedRotation rotation;
  rotation.theta = settings.number("rope_theta", rotation.theta, kTiny, "above 0");
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const std::optional<Settings> scaling = settings.object(key);
    if (!scaling) continue;
    rotation.theta = scaling->number("rope_theta", rotation.theta, kTiny, "above 0");
    scaling->only("partial_rotary_factor", 1.0, "1");
    read_scaling(*scaling, rotation);
  }
  settings.only("partial_rotary_factor", 1.0, "1");
  return rotation;
}

// Returns whether a layer attends over a window.
bool slides(const Settings& settings, const PublishedConfig& config) {
  const bool of_qwen = config.type == "qwen2" || config.type == "qwen3";
  if (!of_qwen) settings.only("use_sliding_window", false, "false");
  const bool may_slide = of_qwen && settings.flag("use_sliding_window", false);
  bool found = false;
  if (settings.has("layer_types"))
    for (const Settings::Json& type : settings.json()["layer_types"]) {
      found = found || type == "sliding_attention";
      if (type != "full_attention" && !(may_slide && type == "sliding_attention"))
        settings.refuse("layer_types", may_slide ? "full_attention and sliding_attention"
                                                 : "full_attention for every layer");
    }
  if (!may_slide) return config.type == "mistral";
  return settings.has("layer_types")
             ? found
             : settings.integer("max_window_layers", kSlidingFrom) < config.layers;
}

// Attention over a window that is as long as the text is attention over everything.
void read_windows(const Settings& settings, PublishedConfig& config) {
  if (!slides(settings, config)) return;
  // null: no window, and kMaxExtent positions.
  const bool is_given = settings.json().contains("sliding_window");
  const std::int64_t window =
      is_given ? settings.integer("sliding_window", kMaxExtent) : kDefaultWindow;
  if (window < kMaxExtent) config.window = window;
}

// A null is the number of heads, and the width of one.
void read_heads(const Settings& settings, const ModelDefaults& defaults, PublishedConfig& config) {
  config.heads = size_in(settings, "num_attention_heads", defaults.heads);
  const bool has_default =
      !settings.json().contains("num_key_value_heads") && defaults.kv_heads > 0;
  config.kv_heads =
      settings.integer("num_key_value_heads", has_default ? defaults.kv_heads : config.heads);
  if (config.heads % config.kv_heads != 0)
    settings.refuse("num_key_value_heads",
                    "a divisor of num_attention_heads, " + std::to_string(config.heads));
  if (defaults.head_size > 0) {
    config.head_size = size_in(settings, "head_dim", defaults.head_size);
  } else {
    if (!settings.has("head_dim") && config.width % config.heads != 0)
      settings.refuse("num_attention_heads",
                      "a divisor of hidden_size, " + std::to_string(config.width));
    config.head_size = settings.integer("head_dim", config.width / config.heads);
  }
  if (config.head_size % 2 != 0) settings.refuse("head_dim", "an even number");
}

void read_llama(const Settings& settings, const ModelDefaults& defaults, PublishedConfig& config) {
  config.layers = size_in(settings, "num_hidden_layers", defaults.layers, kMaxLayers);
  config.width = size_in(settings, "hidden_size", defaults.width);
  config.inner = size_in(settings, "intermediate_size", defaults.inner);
  config.context = size_in(settings, "max_position_embeddings", defaults.context);
  const bool of_llama = config.type == "llama";
  read_heads(settings, defaults, config);
  config.eps = settings.number("rms_norm_eps", defaults.eps, kTiny, "above 0");
  if (const std::string activation = settings.text("hidden_act", "silu");
      activation != "silu" && activation != "swish")
    settings.refuse("hidden_act", "silu");
  config.rotation = read_rotation(settings);
  read_windows(settings, config);
  config.head_norms = config.type == "qwen3";
  const bool has_option = of_llama || config.type == "qwen3";
  config.biases.output = has_option && settings.flag("attention_bias", false);
  config.biases.qkv = config.type == "qwen2" || config.biases.output;
  config.biases.mlp = of_llama && settings.flag("mlp_bias", false);
  note_dropout(settings, {"attention_dropout"}, 0, config);
}

const ModelType& find_type(const Settings& settings) {
  const std::string name = settings.text("model_type", "");
  std::vector<std::string> known;
  for (const ModelType& type : kTypes) {
    if (name == type.name) return type;
    known.emplace_back(type.name);
  }
  settings.refuse("model_type", base::join_text(known));
}

Json parse_settings(const std::string& text, const std::string& source, const char* expected) {
  if (text.size() > kMaxConfigBytes)
    throw engine::ModelError(source + ": has " + std::to_string(text.size()) +
                             " bytes; expected at most " + std::to_string(kMaxConfigBytes));
  Json json;
  try {
    if (io::json_nests_within_limit(text)) json = Json::parse(text);
  } catch (const Json::exception& error) {       // a parse_error, or a number out of range
    const std::string_view what = error.what();  // "[json.exception...] parse error at line ..."
    throw engine::ModelError(
        source + ": not JSON: " + base::escape_text(std::string(what.substr(what.find(']') + 2))));
  }
  if (!json.is_object())
    throw engine::ModelError(source + ": not a JSON object; expected " + expected);
  return json;
}

}  // namespace

PublishedConfig parse_published_config(const std::string& text, const std::string& source) {
  const Json json = parse_settings(text, source, "config.json of a model");
  const Settings settings(json, source);
  const ModelType& type = find_type(settings);
  PublishedConfig config{.family = type.family, .type = type.name};
  if (settings.has("quantization_config"))
    throw engine::ModelError(source +
                             ": 'quantization_config' is set; supported: weights that are not "
                             "quantized (f16, bf16, f32 or f64)");
  settings.only("is_encoder_decoder", false, "false");
  config.vocabulary = size_in(settings, "vocab_size", type.defaults.vocabulary);
  config.ends = settings.ids("eos_token_id");
  if (!json.contains("eos_token_id") && type.defaults.end >= 0) config.ends = {type.defaults.end};
  config.tied = settings.flag("tie_word_embeddings", type.defaults.tied);
  if (type.family == PublishedFamily::kGpt2)
    read_gpt2(settings, type.defaults, config);
  else
    read_llama(settings, type.defaults, config);
  config.text = json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  return config;
}

std::vector<std::int64_t> parse_generation_ends(const std::string& text,
                                                const std::string& source) {
  const Json json = parse_settings(text, source, "generation_config.json of a model");
  return Settings(json, source).ids("eos_token_id");
}

std::string published_config_text(const PublishedConfig& config, const std::string& type) {
  Json json = Json::parse(config.text);
  for (const ModelType& known : kTypes)
    if (config.type == known.name) json["architectures"] = {known.architecture};
  json.erase("_name_or_path");
  const char* key = json.contains("dtype") ? "dtype" : "torch_dtype";
  json.erase("torch_dtype");
  json[key] = type;
  return json.dump(2) + "\n";
}

}  // namespace models
