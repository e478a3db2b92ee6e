// Only the end of a text is named: tokenizer.json has all else.
#include "models/published/published_tokenizer.h"

#include "io/base/formats/json_writer.h"

namespace models {

PublishedTokenizer published_tokenizer(const std::string& end, std::int64_t context) {
  base::JsonWriter config, special;
  config.begin_object()
      .member("tokenizer_class", "PreTrainedTokenizerFast")
      .member("model_max_length", context)
      .member("clean_up_tokenization_spaces", false);
  special.begin_object();
  if (!end.empty()) {
    config.member("eos_token", end);
    special.member("eos_token", end);
  }
  return {.config = config.end_object().text(), .special_tokens = special.end_object().text()};
}

}  // namespace models
