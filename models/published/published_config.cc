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

struct ModelType {
  const char *name, *architecture;
  PublishedFamily family;
  bool tied;  // the default of tie_word_embeddings
};

constexpr ModelType kTypes[] = {
    {"gpt2", "GPT2LMHeadModel", PublishedFamily::kGpt2, true},
    {"llama", "LlamaForCausalLM", PublishedFamily::kLlama, false},
    {"mistral", "MistralForCausalLM", PublishedFamily::kLlama, false},
    {"qwen2", "Qwen2ForCausalLM", PublishedFamily::kLlama, false},
    {"qwen3", "Qwen3ForCausalLM", PublishedFamily::kLlama, false},
};

void note_dropout(const Settings& settings, std::initializer_list<const char*> keys,
                  double otherwise, PublishedConfig& config) {
  std::string found;
  for (const char* key : keys)
    if (const double rate = settings.number(key, otherwise, 0, "from 0"); rate > 0)
      found += (found.empty() ? "" : ", ") + std::string(key) + " " + base::shortest_text(rate);
  if (!found.empty()) config.notes.push_back("dropout of config.json is left out (" + found + ")");
}

void read_gpt2(const Settings& settings, PublishedConfig& config) {
  const char* const heads = settings.key_of("n_head", "num_attention_heads");
  const char* const positions = settings.key_of("n_positions", "max_position_embeddings");
  config.layers = settings.integer(settings.key_of("n_layer", "num_hidden_layers"), {}, kMaxLayers);
  config.width = settings.integer(settings.key_of("n_embd", "hidden_size"));
  config.heads = settings.integer(heads);
  config.context =
      settings.integer(settings.has("n_ctx") && !settings.has(positions) ? "n_ctx" : positions);
  config.inner = settings.integer("n_inner", 4 * config.width);
  config.eps = settings.number("layer_norm_epsilon", 1e-5, kTiny, "above 0");
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

void read_llama(const Settings& settings, PublishedConfig& config) {
  config.layers = settings.integer("num_hidden_layers", {}, kMaxLayers);
  config.width = settings.integer("hidden_size");
  config.inner = settings.integer("intermediate_size");
  config.heads = settings.integer("num_attention_heads");
  config.context = settings.integer("max_position_embeddings");
  const bool of_llama = config.type == "llama";
  config.kv_heads = settings.integer("num_key_value_heads",
                                     of_llama ? std::optional(config.heads) : std::nullopt);
  if (config.heads % config.kv_heads != 0)
    settings.refuse("num_key_value_heads",
                    "a divisor of num_attention_heads, " + std::to_string(config.heads));
  if (!settings.has("head_dim") && config.width % config.heads != 0)
    settings.refuse("num_attention_heads",
                    "a divisor of hidden_size, " + std::to_string(config.width));
  config.head_size = settings.integer("head_dim", config.width / config.heads);
  if (config.head_size % 2 != 0) settings.refuse("head_dim", "an even number");
  config.eps = settings.number("rms_norm_eps", 1e-6, kTiny, "above 0");
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
  config.vocabulary = settings.integer("vocab_size");
  config.ends = settings.ids("eos_token_id");
  config.tied = settings.flag("tie_word_embeddings", type.tied);
  if (type.family == PublishedFamily::kGpt2)
    read_gpt2(settings, config);
  else
    read_llama(settings, config);
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
