// Code points above ASCII are written as numbers, so that messages of PCRE2 stay readable.
#include "io/tokenizer/expression_cursor.h"

#include <algorithm>
#include <charconv>

#include "io/base/files/io_error.h"
#include "io/base/text/escape_text.h"
#include "io/base/text/utf8.h"

namespace io {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hexadecimal(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

}  // namespace

std::string character_text(std::uint32_t code) {
  const char c = static_cast<char>(code);
  if (code < 0x80 && (is_letter(c) || is_digit(c) || c == ' ')) return {c};
  if (code > 0x20 && code < 0x7F) return {'\\', c};
  std::string digits(8, '\0');
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), code, 16);
  return "\\x{" + std::string(digits.data(), end.ptr) + "}";
}

bool ExpressionCursor::take(std::string_view part) {
  if (!begins(part)) return false;
  at_ += part.size();
  return true;
}

std::string ExpressionCursor::character() const {
  const std::size_t bytes = base::utf8_start(static_cast<unsigned char>(peek())).bytes;
  return std::string(text_.substr(at_, std::max<std::size_t>(bytes, 1)));
}

std::uint32_t ExpressionCursor::code() {
  const std::string all = character();
  if (ended() || !base::is_utf8(all)) invalid("expected a character");
  at_ += all.size();
  std::uint32_t code = static_cast<unsigned char>(all[0]);
  if (all.size() > 1) code &= 0xFFu >> (all.size() + 1);
  for (std::size_t i = 1; i < all.size(); ++i)
    code = code << 6 | (static_cast<unsigned char>(all[i]) & 0x3F);
  return code;
}

std::uint32_t ExpressionCursor::escaped_code() {
  constexpr std::string_view kNames = "ntrfvae", kCodes = "\n\t\r\f\v\a\x1B";
  const char c = peek();
  const std::string construct = "\\" + character();
  if (const std::size_t found = kNames.find(c); !ended() && found != std::string_view::npos) {
    ++at_;
    return static_cast<unsigned char>(kCodes[found]);
  }
  if (take("x{")) {
    const std::uint32_t code = hexadecimal(6, construct);
    if (!take("}")) reject(construct);
    return code;
  }
  if (take("u")) return hexadecimal(4, construct);
  if (take("x")) {
    const std::uint32_t code = hexadecimal(2, construct);
    if (code >= 0x80) reject("\\x with a byte of a character");
    return code;
  }
  if (is_letter(c) || is_digit(c)) reject(construct);
  return code();
}

std::uint32_t ExpressionCursor::hexadecimal(std::size_t count, const std::string& construct) {
  const std::size_t begin = at_;
  while (at_ < begin + count && is_hexadecimal(peek())) ++at_;
  std::uint32_t code = 0;
  std::from_chars(text_.data() + begin, text_.data() + at_, code, 16);
  const bool whole = at_ > begin && (count != 4 || at_ == begin + count);
  if (!whole || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) reject(construct);
  return code;
}

std::string ExpressionCursor::name() {
  const std::size_t begin = at_;
  while (is_letter(peek()) || peek() == '_') ++at_;
  return std::string(text_.substr(begin, at_ - begin));
}

std::string ExpressionCursor::quantifier_at() const {
  return peek() == '*' || peek() == '+' || peek() == '?' ? std::string(1, peek()) : "";
}

std::string ExpressionCursor::quantifier() {
  const std::string found = quantifier_at();
  at_ += found.size();
  return found;
}

std::string ExpressionCursor::interval() const {
  if (!begins("{")) return "";
  const std::size_t end = text_.find('}', at_);
  if (end == std::string_view::npos) return "";
  const std::string inner(text_.substr(at_ + 1, end - at_ - 1));
  const auto digits = [](std::string_view text) { return std::ranges::all_of(text, is_digit); };
  const std::size_t comma = inner.find(',');
  if (comma == std::string::npos) return inner.empty() || !digits(inner) ? "" : "{" + inner + "}";
  const std::string from = inner.substr(0, comma), to = inner.substr(comma + 1);
  if (!digits(from) || !digits(to) || (from.empty() && to.empty())) return "";
  return "{" + (from.empty() ? "0" : from) + "," + to + "}";
}

void ExpressionCursor::skip_interval(std::string_view interval) {
  if (!interval.empty()) at_ = text_.find('}', at_) + 1;
}

void ExpressionCursor::reject(const std::string& construct) const {
  throw DataError(source_ + ": the regular expression '" + base::escape_text(text_) +
                  "' of the pre-tokenizer has " + base::escape_text(construct) +
                  ", which PCRE2 does not match as the library tokenizers does; expected an "
                  "expression without it");
}

void ExpressionCursor::invalid(const std::string& what) const {
  throw DataError(source_ + ": the regular expression '" + base::escape_text(text_) +
                  "' of the pre-tokenizer is not valid at character " + std::to_string(at_) + ": " +
                  what);
}

}  // namespace io
