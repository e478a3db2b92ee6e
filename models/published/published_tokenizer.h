// Describes the tokenizer of an exported model for the class AutoTokenizer of `transformers`.
#pragma once

#include <cstdint>
#include <string>

namespace models {

struct PublishedTokenizer {
  std::string config;          // tokenizer_config.json
  std::string special_tokens;  // special_tokens_map.json
};

// `end`: the token that ends a text, "" if there is none. `context`: the longest text, in tokens.
// The class is the one that reads tokenizer.json as it is; those of model types add tokens.
PublishedTokenizer published_tokenizer(const std::string& end, std::int64_t context);

}  // namespace models
