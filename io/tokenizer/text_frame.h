// The tokens around a whole text, as the post-processor of tokenizer.json states them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace io {

struct TextFrame {
  std::vector<std::int32_t> before, after;  // e.g. before: <|begin_of_text|> of Llama 3
};

// `post_processor`: the part of tokenizer.json, also null. `size`: ids are below it. Throws
// DataError with `source`, a path, for one that is damaged or of an unknown type.
TextFrame read_text_frame(const nlohmann::json& post_processor, std::int64_t size,
                          const std::string& source);

}  // namespace io
