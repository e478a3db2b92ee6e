// Shared by the readers of text headers: position, white space, single characters, integers and
// error messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "io/base/files/io_error.h"

namespace io {

class HeaderScanner {
 protected:
  // `kind` ("bad .npy header") and `file` stand in messages; text and file outlive the scanner.
  HeaderScanner(std::string_view text, const std::string& file, const char* kind)
      : text_(text), file_(file), kind_(kind) {}

  [[noreturn]] void fail(const std::string& fault) const {
    throw DataError(file_ + ": " + kind_ + " at byte " + std::to_string(at_) + ": " + fault);
  }
  void space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }
  bool take(char c) {
    space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(std::string("expected '") + c + "'");
  }
  // A whole number of at least 0, which is all that shapes and offsets can be.
  std::int64_t number() {
    space();
    const std::size_t start = at_;
    std::int64_t value = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      const std::int64_t digit = text_[at_] - '0';
      if (value > (std::numeric_limits<std::int64_t>::max() - digit) / 10)
        fail("a number that does not fit into 63 bits");
      value = value * 10 + digit;
      ++at_;
    }
    if (at_ == start) fail("expected a whole number of at least 0");
    if (at_ - start > 1 && text_[start] == '0') fail("a number with a leading zero");
    return value;
  }

  std::string_view text_;
  std::size_t at_ = 0;

 private:
  const std::string& file_;
  const char* kind_;
};

}  // namespace io
