// A published model is written with the settings that it was read with; for a built-in GPT the
// settings are made up, since its layers and names are GPT-2's.
#include "models/publish.h"

#include <algorithm>

#include "engine/core/error.h"
#include "io/base/formats/json_writer.h"
#include "models/mingpt.h"
#include "models/model_catalog.h"
#include "models/model_families.h"
#include "models/published/published_model.h"

namespace models {
namespace {

// The number of rows of a table.
std::int64_t rows_of(const std::vector<io::NamedArray>& arrays, const std::string& table,
                     const std::string& model) {
  const auto found = std::ranges::find(arrays, table, &io::NamedArray::name);
  if (found == arrays.end() || found->shape.size() != 2)
    throw engine::ModelError(model + ": lacks the table '" + table + "' of a gpt2");
  return found->shape[0];
}

std::string gpt_config(const GptSize& size, const std::string& model,
                       const std::vector<io::NamedArray>& arrays) {
  base::JsonWriter json;
  json.begin_object()
      .member("model_type", "gpt2")
      .member("n_layer", size.layers)
      .member("n_head", size.heads)
      .member("n_embd", size.width)
      .member("n_positions", rows_of(arrays, "transformer.wpe.weight", model))
      .member("vocab_size", rows_of(arrays, "transformer.wte.weight", model))
      .member("activation_function", "gelu_new")
      .member("layer_norm_epsilon", 1e-5)
      .member("tie_word_embeddings", true);
  for (const char* dropout : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) json.member(dropout, 0.0);
  // The defaults are GPT-2's, beyond most other vocabularies.
  for (const char* token : {"bos_token_id", "eos_token_id"}) json.key(token).null();
  return json.end_object().text();
}

std::string config_of(const std::string& name, const std::string& definition,
                      const std::vector<io::NamedArray>& arrays) {
  if (!definition.empty()) {
    std::string config = layer_list_config(name, definition);
    if (config.empty())
      throw engine::ModelError(name +
                               ": its list of layers was not made of a published model; "
                               "expected one that was trained from such a folder, or mingpt, "
                               "gpt-nano, gpt-mini or gpt2");
    return config;
  }
  if (const std::optional<GptSize> size = gpt_size(name)) return gpt_config(*size, name, arrays);
  throw engine::ModelError("the model '" + name +
                           "' has no class in transformers; expected one that was trained from a "
                           "published model's folder, or mingpt, gpt-nano, gpt-mini or gpt2");
}

// The names that config.json has for types.
std::string type_name(io::DType type) {
  switch (type) {
    case io::DType::kF16:
      return "float16";
    case io::DType::kBF16:
      return "bfloat16";
    case io::DType::kF64:
      return "float64";
    default:
      return "float32";
  }
}

}  // namespace

PublishedFiles publish(const std::string& name, const std::string& definition,
                       std::vector<io::NamedArray> arrays) {
  const std::string list =
      definition.empty() && gpt_size(name) == std::nullopt ? model_definition(name) : definition;
  const PublishedConfig config =
      parse_published_config(config_of(name, list, arrays), name + ": config_json");
  PublishedFiles files{.config = {},
                       .type = config.type,
                       .context = config.context,
                       .ends = config.ends,
                       .tensors = published_tensors(config, std::move(arrays), name)};
  files.config = published_config_text(config, type_name(files.tensors.front().type));
  return files;
}

}  // namespace models
