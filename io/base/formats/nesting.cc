// Makes one pass over the text, skipping strings and comments.
#include "io/base/formats/nesting.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace io {
namespace {

// Returns the position after the string that starts at `at`. In TOML three quotes may enclose it.
std::size_t end_of_string(std::string_view text, std::size_t at, bool toml) {
  const char quote = text[at];
  const std::string_view three = text.substr(at, 3);
  const bool is_long = toml && three.size() == 3 && three[1] == quote && three[2] == quote;
  const std::size_t quotes = is_long ? 3 : 1;
  for (at += quotes; at < text.size(); ++at) {
    if (text[at] == '\\' && quote == '"')
      ++at;
    else if (text[at] == '\n' && toml && !is_long)
      return at;  // the parser rejects it
    else if (text.substr(at, quotes) == three.substr(0, quotes))
      return at + quotes;
  }
  return text.size();
}

// The open levels: those of brackets, and those of the dotted key before each of them.
class Levels {
 public:
  bool open() {
    if (count_ == kMaxNesting) return false;
    keys_[static_cast<std::size_t>(count_++)] = key_;
    sum_ += key_ + 1;
    key_ = 0;
    return sum_ <= kMaxNesting;
  }
  void close() {
    key_ = 0;
    if (count_ > 0) sum_ -= keys_[static_cast<std::size_t>(--count_)] + 1;
  }
  bool extend_key() { return ++key_ + sum_ <= kMaxNesting; }
  void end_key() { key_ = 0; }

 private:
  std::array<int, kMaxNesting> keys_{};
  int count_ = 0, sum_ = 0, key_ = 0;
};

bool nests_within_limit(std::string_view text, bool toml) {
  Levels levels;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"' || (toml && c == '\'')) {
      at = end_of_string(text, at, toml);
      continue;
    }
    ++at;
    if ((c == '[' || c == '{') && !levels.open()) return false;
    if (c == ']' || c == '}') levels.close();
    if (!toml) continue;
    if (c == '#') at = std::min(text.find('\n', at), text.size());
    if (c == '.' && !levels.extend_key()) return false;
    if (c == ',' || c == '\n') levels.end_key();
  }
  return true;
}

}  // namespace

bool json_nests_within_limit(std::string_view text) { return nests_within_limit(text, false); }

bool toml_nests_within_limit(std::string_view text) { return nests_within_limit(text, true); }

std::optional<int> line_of_stray_toml_character(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  for (std::size_t at = text.starts_with(kByteOrderMark) ? 3 : 0; at < text.size();) {
    if (text[at] == '"' || text[at] == '\'')
      at = end_of_string(text, at, true);
    else if (text[at] == '#')
      at = std::min(text.find('\n', at), text.size());
    else if (static_cast<unsigned char>(text[at++]) >= 0x80)
      return 1 + static_cast<int>(std::ranges::count(text.substr(0, at), '\n'));
  }
  return std::nullopt;
}

}  // namespace io
