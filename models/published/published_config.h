// Reads config.json of a text model of Hugging Face's library `transformers`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace models {

// The largest config.json that is read. The list of layers keeps its text.
inline constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{64} << 10;

// The frequencies of the rotation of queries and keys. A factor other than 1 scales them as Llama 3
// does.
struct PublishedRotation {
  double theta = 10000;
  double factor = 1, low_factor = 1, high_factor = 4;
  double original_context = 8192;
};

// The layers that have biases, in the families that choose.
struct PublishedBiases {
  bool qkv = false;     // of queries, keys and values
  bool output = false;  // of the attention's last layer
  bool mlp = false;
};

enum class PublishedFamily : std::uint8_t { kGpt2, kLlama };

struct PublishedConfig {
  PublishedFamily family = PublishedFamily::kGpt2;
  std::string type;  // the model_type: "gpt2", "qwen2"
  std::int64_t layers = 0, width = 0, inner = 0, vocabulary = 0;
  std::int64_t context = 0;  // the number of positions that the model was made for
  std::int64_t window = 0;   // positions that attention sees, of at least one layer; 0: all
  std::int64_t heads = 0, kv_heads = 0, head_size = 0;
  double eps = 0;
  bool tied = false;       // the output layer has the weights of the token embedding
  std::string activation;  // gpt2: "tanh" or "none", as the layer gelu has it
  PublishedRotation rotation;
  PublishedBiases biases;
  bool head_norms = false;         // norms of queries and keys, head by head
  std::vector<std::int64_t> ends;  // the tokens that end a text
  std::vector<std::string> notes;  // settings that training leaves out, a line each
  std::string text;                // the whole config.json on one line
};

// Throws engine::ModelError "`source`: ..." for text that is not JSON, a setting that is missing or
// has another type or range, and one that no list of layers expresses, with what is supported.
PublishedConfig parse_published_config(const std::string& text, const std::string& source);

// Returns the ids of eos_token_id in the text of a generation_config.json. Throws
// engine::ModelError "`source`: ...".
std::vector<std::int64_t> parse_generation_ends(const std::string& text, const std::string& source);

// Returns config.json for weights of type `type` ("float32"), for the class of `transformers` with
// an output layer.
std::string published_config_text(const PublishedConfig& config, const std::string& type);

}  // namespace models
