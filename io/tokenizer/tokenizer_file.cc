// Reads tokenizer.json. What is not supported is an error that names it, since it would change ids.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "io/base/files/io_error.h"
#include "io/base/files/open_file.h"
#include "io/base/formats/nesting.h"
#include "io/base/text/escape_text.h"
#include "io/tokenizer/byte_characters.h"
#include "io/tokenizer/composed_text.h"
#include "io/tokenizer/text_frame.h"
#include "io/tokenizer/tokenizer.h"

namespace io {
namespace {

using Json = nlohmann::json;

// GPT-2's, which pre-tokenizers of the type ByteLevel have built in (Radford et al., 2019).
constexpr const char* kByteLevel =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

// Expressions that do not cross a line feed between printable ASCII characters: those of Llama 3
// and of Qwen 2.
constexpr std::string_view kKnown[] = {
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"};

constexpr std::int64_t kMaxId = (std::int64_t{1} << 24) - 1;

}  // namespace

class TokenizerFile {
 public:
  TokenizerFile(const std::string& text, const std::string& source) : source_(source) {
    if (!json_nests_within_limit(text)) fail("nested too deeply");
    root_ = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!root_.is_object()) fail("not a JSON object; expected tokenizer.json of Hugging Face");
  }

  Tokenizer read() {
    read_model(part(root_, "model", "the file"));
    read_normalizer(root_);
    read_pre_tokenizer(root_);
    read_added_tokens();
    for (const char* name : {"truncation", "padding"})
      if (is_set(root_, name)) result_.length_settings_.emplace_back(name);
    result_.frame_ =
        read_text_frame(root_.value("post_processor", Json()), result_.size(), source_);
    return std::move(result_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw DataError(source_ + ": " + what); }
  [[noreturn]] void refuse(const std::string& what, const std::string& found,
                           const std::string& expected) const {
    fail(what + " is '" + base::escape_text(found) + "'; expected " + expected);
  }

  const Json& part(const Json& of, const char* name, const std::string& where) const {
    const auto found = of.find(name);
    if (found == of.end() || !found->is_object()) fail(where + " has no '" + name + "'");
    return *found;
  }
  std::string text(const Json& of, const char* name) const {
    const auto found = of.find(name);
    return found != of.end() && found->is_string() ? found->get<std::string>() : "";
  }
  bool flag(const Json& of, const char* name, bool otherwise) const {
    const auto found = of.find(name);
    return found != of.end() && found->is_boolean() ? found->get<bool>() : otherwise;
  }
  static bool is_set(const Json& of, const char* name) {
    const auto found = of.find(name);
    return found != of.end() && !found->is_null() && *found != "" && *found != false && *found != 0;
  }

  // Throws for characters that stand for no byte.
  std::string bytes_of(const std::string& token) const {
    std::optional<std::string> bytes = bytes_of_characters(token);
    if (!bytes)
      refuse("token", token, "characters that stand for bytes, as GPT-2's vocabulary has");
    return *std::move(bytes);
  }

  void read_model(const Json& model) {
    // Files of before 2021 have no type: GPT-2's own is one.
    const bool is_typed = model.contains("type") || !model.contains("merges");
    if (is_typed && text(model, "type") != "BPE") refuse("model.type", text(model, "type"), "BPE");
    for (const char* name :
         {"dropout", "byte_fallback", "continuing_subword_prefix", "end_of_word_suffix"})
      if (is_set(model, name))
        refuse(std::string("model.") + name, model[name].dump(), "none, as byte-level models have");
    std::unordered_map<std::string, std::int32_t> tokens;
    const Json& vocabulary = part(model, "vocab", "model");
    vocabulary_size_ = vocabulary.size();
    tokens.reserve(vocabulary_size_);
    std::unordered_map<std::string, std::int32_t> added;  // the ones among them, as bytes
    for (const auto& [token, id] : vocabulary.items()) {
      const std::int32_t number = id_from(id, token);
      if (is_added(token)) {
        added_names_[token] = number;
        set_text(number, token);
        const std::optional<std::string> bytes = bytes_of_characters(token);
        if (!bytes) continue;  // plain text, which no merge makes
        added.emplace(*bytes, number);
        tokens.emplace(*bytes, number);
        continue;
      }
      std::string bytes = bytes_of(token);
      set_text(number, bytes);
      tokens.emplace(std::move(bytes), number);
    }
    const auto merges = model.find("merges");
    if (merges == model.end() || !merges->is_array()) fail("model has no list 'merges'");
    std::vector<std::pair<std::string, std::string>> pairs;
    pairs.reserve(merges->size());
    for (const Json& merge : *merges) pairs.push_back(pair_of(merge));
    // Texts also have single bytes and the results of merges if the text has no added token.
    for (const auto& [bytes, id] : added)
      if (bytes.size() == 1) set_text(id, bytes);
    for (const auto& [left, right] : pairs)
      if (const auto found = added.find(left + right); found != added.end())
        set_text(found->second, found->first);
    result_.pairs_.emplace(source_, std::move(tokens), pairs, flag(model, "ignore_merges", false));
  }

  std::int32_t id_from(const Json& id, const std::string& token) const {
    if (!id.is_number_integer() || id < 0 || id > kMaxId)
      refuse("the id of token '" + base::escape_text(token) + "'", id.dump(),
             "0.." + std::to_string(kMaxId));
    return id.get<std::int32_t>();
  }

  void set_text(std::int32_t id, const std::string& bytes) {
    std::vector<std::string>& texts = result_.texts_;
    if (texts.size() <= static_cast<std::size_t>(id))
      texts.resize(static_cast<std::size_t>(id) + 1);
    texts[static_cast<std::size_t>(id)] = bytes;
  }

  // Older files write "a b", newer ones ["a", "b"].
  std::pair<std::string, std::string> pair_of(const Json& merge) const {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
      return {bytes_of(merge[0].get<std::string>()), bytes_of(merge[1].get<std::string>())};
    const std::string both = merge.is_string() ? merge.get<std::string>() : "";
    const std::size_t blank = both.find(' ');
    if (blank == std::string::npos || both.find(' ', blank + 1) != std::string::npos)
      refuse("a merge", merge.dump(), "two tokens, as \"a b\" or [\"a\", \"b\"]");
    return {bytes_of(both.substr(0, blank)), bytes_of(both.substr(blank + 1))};
  }

  bool is_added(const std::string& token) {
    if (added_names_.empty())
      for (const Json& added : added_tokens()) added_names_.emplace(text(added, "content"), -1);
    return added_names_.contains(token);
  }
  const Json& added_tokens() const {
    static const Json none = Json::array();
    const auto found = root_.find("added_tokens");
    return found != root_.end() && found->is_array() ? *found : none;
  }

  void read_normalizer(const Json& of) {
    const auto found = of.find("normalizer");
    if (found == of.end() || found->is_null()) return;
    const std::string type = text(*found, "type");
    if (type == "NFC") {
      result_.composes_ = true;
      return;
    }
    const auto steps = found->find("normalizers");
    if (type != "Sequence" || steps == found->end() || !steps->is_array())
      refuse("normalizer.type", type, "NFC or none");
    for (const Json& step : *steps) read_normalizer({{"normalizer", step}});
  }

  void read_pre_tokenizer(const Json& of) {
    const auto found = of.find("pre_tokenizer");
    if (found == of.end() || !found->is_object())
      refuse("pre_tokenizer", "none", "ByteLevel, or a Sequence with it");
    const std::string type = text(*found, "type");
    if (is_in_bytes_ && type != "Sequence")
      refuse("pre_tokenizer", type + "' after 'ByteLevel",
             "ByteLevel as the last step: later ones see the characters that stand for bytes");
    if (type == "ByteLevel") return read_byte_level(*found);
    if (type == "Split") return read_split(*found);
    if (type == "Digits") {
      result_.splits_.emplace_back(source_,
                                   flag(*found, "individual_digits", false) ? "\\p{N}" : "\\p{N}+",
                                   TextSplit::Gaps::kKept);
      return;
    }
    const auto steps = found->find("pretokenizers");
    if (type != "Sequence" || steps == found->end() || !steps->is_array())
      refuse("pre_tokenizer.type", type, "ByteLevel, Split, Digits, or a Sequence of these");
    for (const Json& step : *steps) read_pre_tokenizer({{"pre_tokenizer", step}});
  }

  void read_byte_level(const Json& step) {
    is_in_bytes_ = true;
    if (flag(step, "add_prefix_space", true)) {
      if (!result_.splits_.empty())
        refuse("pre_tokenizer.add_prefix_space", "true", "false after another pre-tokenizer");
      result_.prefix_space_ = true;
      result_.joins_lines_ = true;  // each part would get one
    }
    if (!flag(step, "use_regex", true)) return;
    result_.splits_.emplace_back(source_, kByteLevel, TextSplit::Gaps::kKept);
    result_.splits_at_lines_ = true;
  }

  void read_split(const Json& step) {
    const std::string behavior = text(step, "behavior");
    const bool inverted = flag(step, "invert", false);
    const bool isolated = behavior == "Isolated", removed = behavior == "Removed" && inverted;
    if (!isolated && !removed)
      refuse("pre_tokenizer.behavior", behavior + (inverted ? "', inverted" : ""),
             "Isolated, or Removed with invert");
    const Json& pattern = part(step, "pattern", "pre_tokenizer");
    const std::string expression = text(pattern, "Regex");
    if (expression.empty()) refuse("pre_tokenizer.pattern", pattern.dump(), "a Regex");
    const bool known = std::ranges::find(kKnown, expression) != std::end(kKnown);
    (known && isolated ? result_.splits_at_lines_ : result_.joins_lines_) = true;
    result_.splits_.emplace_back(source_, expression,
                                 isolated ? TextSplit::Gaps::kKept : TextSplit::Gaps::kRemoved);
  }

  // Returns whether the vocabulary has the token. The library gives others the next free ids, in
  // the order of the file.
  bool check_added_id(const std::string& content, std::int32_t id) {
    const std::int32_t listed = is_added(content) ? added_names_[content] : -1;
    const auto next = static_cast<std::int32_t>(std::max<std::size_t>(
        vocabulary_size_, static_cast<std::size_t>(std::int64_t{largest_added_} + 1)));
    const std::int32_t expected = listed >= 0 ? listed : next;
    if (id != expected)
      refuse("the id of added token '" + base::escape_text(content) + "'", std::to_string(id),
             std::to_string(expected) + (listed >= 0 ? ", its id in the vocabulary"
                                                     : ", the next free one, which the library "
                                                       "tokenizers gives it"));
    added_names_[content] = id;
    largest_added_ = std::max(largest_added_, id);
    return listed >= 0;
  }

  void read_added_tokens() {
    for (const Json& added : added_tokens()) {
      const std::string content = text(added, "content");
      if (content.empty()) continue;
      for (const char* name : {"lstrip", "rstrip", "single_word"})
        if (flag(added, name, false))
          refuse("added token '" + base::escape_text(content) + "': " + name, "true", "false");
      const auto id = added.find("id");
      if (id == added.end()) fail("added token '" + base::escape_text(content) + "' has no id");
      const std::int32_t number = id_from(*id, content);
      if (!check_added_id(content, number)) set_text(number, content);
      result_.ids_of_added_.emplace(content, number);
      if (content.find('\n') != std::string::npos) result_.joins_lines_ = true;
      const bool after = flag(added, "normalized", !flag(added, "special", false));
      auto& tokens = after ? result_.added_after_normalization_ : result_.added_;
      // It is found in text that has been composed.
      const std::string found =
          after && result_.composes_ && may_compose(content) ? composed_text(content) : content;
      tokens[static_cast<unsigned char>(found[0])].push_back({found, number});
    }
    for (auto* tokens : {&result_.added_, &result_.added_after_normalization_})
      for (auto& candidates : *tokens)
        std::ranges::stable_sort(candidates, std::greater<>(),
                                 [](const auto& token) { return token.text.size(); });
  }

  const std::string& source_;
  Json root_;
  std::unordered_map<std::string, std::int32_t> added_names_;  // ids that are known; -1: none
  std::size_t vocabulary_size_ = 0;
  std::int32_t largest_added_ = -1;
  bool is_in_bytes_ = false;  // a ByteLevel has been read
  Tokenizer result_;
};

Tokenizer Tokenizer::parse(const std::string& text, const std::string& source) {
  return TokenizerFile(text, source).read();
}

std::string Tokenizer::file_of(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code unknown;
  return fs::is_directory(path, unknown) ? (fs::path(path) / "tokenizer.json").string() : path;
}

Tokenizer Tokenizer::read(const std::string& path) {
  const std::string file = file_of(path);
  return parse(read_small_file(file, kMaxTokenizerBytes), file);
}

}  // namespace io
