// Reads the characters of a regular expression in Oniguruma's syntax.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace io {

// Returns a character as PCRE2 expects it, outside of sets and in them.
std::string character_text(std::uint32_t code);

class ExpressionCursor {
 public:
  // `source`: a path, for messages. REQUIRES: both outlive the cursor.
  ExpressionCursor(const std::string& source, const std::string& expression)
      : source_(source), text_(expression) {}

  bool ended() const { return at_ == text_.size(); }
  // Returns the next byte, '\0' at the end.
  char peek() const { return ended() ? '\0' : text_[at_]; }
  bool begins(std::string_view part) const { return text_.substr(at_).starts_with(part); }
  // Skips `part` if it is next.
  bool take(std::string_view part);

  // Returns the next character, not translated; "" at the end.
  std::string character() const;
  // Skips a character and returns its code point. Throws DataError at the end.
  std::uint32_t code();
  // Skips what follows a backslash, and returns the code point of the character that it denotes.
  // Throws DataError if it denotes no character.
  std::uint32_t escaped_code();
  // Skips and returns ASCII letters and underscores.
  std::string name();

  // Returns the quantifier *, + or ? that is next, "" if there is none.
  std::string quantifier_at() const;
  std::string quantifier();
  // Returns the interval that is next, e.g. "{1,3}", as PCRE2 expects it: {,3} is {0,3}. Returns ""
  // if there is none; then a brace is a character.
  std::string interval() const;
  void skip_interval(std::string_view interval);

  // Throws DataError: this construct has no exact translation.
  [[noreturn]] void reject(const std::string& construct) const;
  // Throws DataError: the expression is not valid here.
  [[noreturn]] void invalid(const std::string& what) const;

 private:
  // Skips up to `count` hexadecimal digits and returns their value.
  std::uint32_t hexadecimal(std::size_t count, const std::string& construct);

  const std::string& source_;
  const std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace io
