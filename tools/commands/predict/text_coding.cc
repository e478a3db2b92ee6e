// Encodes prompts and decodes tokens.
#include "tools/commands/predict/text_coding.h"

#include <charconv>
#include <memory>
#include <utility>

#include "io/base/text/escape_text.h"
#include "models/model_catalog.h"
#include "tools/commands/predict/token_sampling.h"
#include "tools/report/output/exit_codes.h"

namespace tools {

TextCoding::TextCoding(const io::Checkpoint& checkpoint, const std::string& path,
                       const std::string& file, bool ids_alone)
    : vocabulary_(checkpoint.vocabulary) {
  if (!file.empty() && !vocabulary_.empty())
    throw UsageError("--tokenizer: the tokens of " + path +
                     " are the characters of its training text; leave it out");
  if (!file.empty())
    tokenizer_.emplace(io::Tokenizer::read(file));
  else if (!checkpoint.tokenizer.empty())
    read_own(checkpoint.tokenizer, path + ": its tokenizer", ids_alone);
  for (const std::int64_t end : models::end_tokens(path, checkpoint.definition))
    if (std::in_range<std::int32_t>(end)) ends_.push_back(static_cast<std::int32_t>(end));
  frames_ = models::is_of_published_model(path, checkpoint.definition);
  if (frames_)
    for (const std::int64_t end : models::generation_ends(checkpoint.model))
      if (std::in_range<std::int32_t>(end)) ends_.push_back(static_cast<std::int32_t>(end));
  if (tokenizer_)
    if (const auto end = tokenizer_->end_of_text()) ends_.push_back(*end);
}

void TextCoding::read_own(const std::string& tokenizer, const std::string& source, bool ids_alone) {
  try {
    tokenizer_.emplace(io::Tokenizer::parse(tokenizer, source));
  } catch (const io::Error& error) {
    if (!ids_alone) throw;
    fault_ = error.what();
  }
}

std::vector<std::int32_t> TextCoding::ids(const std::string& prompt) const {
  if (!tokenizer_) return token_ids(prompt, vocabulary_);
  std::vector<std::int32_t> ids;
  const io::TextFrame frame = frames_ ? tokenizer_->frame() : io::TextFrame{};
  ids.assign(frame.before.begin(), frame.before.end());
  io::TokenEncoder(*tokenizer_).encode(prompt, ids);
  ids.insert(ids.end(), frame.after.begin(), frame.after.end());
  return ids;
}

TextCoding::Writer TextCoding::writer() const {
  if (!tokenizer_)
    return {.add =
                [this](std::int32_t id) {
                  return std::string(1, vocabulary_[static_cast<std::size_t>(id)]);
                },
            .finish = [] { return std::string(); }};
  const auto decoder = std::make_shared<io::TokenDecoder>(*tokenizer_);
  return {.add = [decoder](std::int32_t id) { return decoder->add(id); },
          .finish = [decoder] { return decoder->finish(); }};
}

std::vector<std::int32_t> parse_ids(const std::string& text, std::int64_t vocabulary) {
  std::vector<std::int32_t> ids;
  const char *at = text.data(), *const end = at + text.size();
  for (;;) {
    std::int32_t id = -1;
    const auto [rest, failure] = std::from_chars(at, end, id);
    if (failure != std::errc{} || id < 0 || id >= vocabulary || (rest != end && *rest != ','))
      throw UsageError("--prompt-ids '" + base::escape_text(text) +
                       "': expected token ids from 0 to " + std::to_string(vocabulary - 1) +
                       ", as 1,2,3");
    ids.push_back(id);
    if (rest == end) return ids;
    at = rest + 1;
  }
}

}  // namespace tools
