// How a text model's tokens are text: bytes of a vocabulary, tokens of a tokenizer, or ids alone.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "io/tokenizer/tokenizer.h"

namespace tools {

class TextCoding {
 public:
  // Uses the checkpoint at `path`, or the tokenizer.json `file` if it is not "". With `ids_alone`,
  // a checkpoint's tokenizer that cannot be read is left out, and fault() says why. Throws as
  // io::Tokenizer does, and UsageError for a tokenizer of a model of characters.
  TextCoding(const io::Checkpoint& checkpoint, const std::string& path, const std::string& file,
             bool ids_alone = false);

  // Returns what is wrong with a tokenizer that is left out; "" if none is.
  const std::string& fault() const { return fault_; }
  bool has_text() const { return tokenizer_ || !vocabulary_.empty(); }
  // Returns the ids of a prompt. For models that began as published ones they include the tokens
  // that the tokenizer's post-processor adds, e.g. <|begin_of_text|>, as in `transformers`; other
  // models have been trained on files without them. Throws UsageError for characters that the
  // vocabulary lacks. REQUIRES: has_text().
  std::vector<std::int32_t> ids(const std::string& prompt) const;
  // The ids below this have a text; 0: unknown.
  std::int64_t size() const { return tokenizer_ ? tokenizer_->size() : std::ssize(vocabulary_); }
  // The tokens that end a text, by the tokenizer, by the model's config.json, and by
  // generation_config.json in the folder of a published model if it is there.
  const std::vector<std::int32_t>& ends() const { return ends_; }

  // The texts of the tokens that follow a prompt, one by one, and what remains at the end.
  struct Writer {
    std::function<std::string(std::int32_t)> add;
    std::function<std::string()> finish;
  };
  // REQUIRES: has_text(). This outlives the writer.
  Writer writer() const;

 private:
  void read_own(const std::string& tokenizer, const std::string& source, bool ids_alone);

  const std::string vocabulary_;
  std::string fault_;
  std::optional<io::Tokenizer> tokenizer_;
  std::vector<std::int32_t> ends_;
  bool frames_ = false;  // prompts have the tokens around a text
};

// Returns "1,2,3" as ids. Throws UsageError for other texts, or if an id is not below `vocabulary`.
std::vector<std::int32_t> parse_ids(const std::string& text, std::int64_t vocabulary);

}  // namespace tools
