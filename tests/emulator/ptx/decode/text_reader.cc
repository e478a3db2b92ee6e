// Leaves out spaces and comments.
#include "tests/emulator/ptx/decode/text_reader.h"

#include <charconv>
#include <system_error>

namespace ptx {
namespace {

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$' || c == '%' || c == '.';
}
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

}  // namespace

char TextReader::take() {
  skip();
  return at_ < text_.size() ? text_[at_++] : '\0';
}

bool TextReader::take_if(char c) {
  if (peek() != c) return false;
  ++at_;
  return true;
}

void TextReader::expect(char c) {
  if (!take_if(c))
    throw Fault(std::string("'") + c + "' expected before \"" + std::string(text_.substr(at_, 30)) +
                "\"");
}

std::string_view TextReader::word() {
  skip();
  const std::size_t start = at_;
  while (at_ < text_.size() && is_word(text_[at_])) ++at_;
  // Of an opcode: shared::cta.
  while (at_ + 2 < text_.size() && at_ > start && text_[at_] == ':' && text_[at_ + 1] == ':') {
    at_ += 2;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
  }
  if (at_ == start)
    throw Fault("a name expected before \"" + std::string(text_.substr(at_, 30)) + "\"");
  return text_.substr(start, at_ - start);
}

void TextReader::to_end_of_line() {
  while (at_ < text_.size() && text_[at_] != '\n') ++at_;
}

void TextReader::skip() {
  while (at_ < text_.size()) {
    if (is_space(text_[at_])) {
      ++at_;
    } else if (text_.compare(at_, 2, "//") == 0) {
      to_end_of_line();
    } else if (text_.compare(at_, 2, "/*") == 0) {
      const std::size_t end = text_.find("*/", at_ + 2);
      at_ = end == std::string_view::npos ? text_.size() : end + 2;
    } else {
      return;
    }
  }
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (std::size_t start = 0;;) {
    const std::size_t end = text.find(at, start);
    parts.push_back(text.substr(start, end - start));
    if (end == std::string_view::npos) return parts;
    start = end + 1;
  }
}

std::uint64_t number_of(std::string_view digits, int base) {
  std::uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc() || end != digits.data() + digits.size())
    throw Fault("not a number: " + std::string(digits));
  return value;
}

unsigned bytes_of_type(std::string_view type) {
  if (type == "pred") return 1;
  if (type.size() < 2 || std::string_view("bsuf").find(type[0]) == std::string_view::npos) return 0;
  if (type.substr(1) == "8") return 1;
  if (type.substr(1) == "16") return 2;
  if (type.substr(1) == "32") return 4;
  if (type.substr(1) == "64") return 8;
  return 0;
}

}  // namespace ptx
