// The text of PTX: words and characters, numbers and names of types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/emulator/ptx/decode/ptx_program.h"

namespace ptx {

// Words (names, opcodes, numbers) and single characters; comments and spaces between them are left
// out. All throw Fault where something else stands there.
class TextReader {
 public:
  TextReader(std::string_view text, std::size_t at) : text_(text), at_(at) {}

  std::size_t position() {
    skip();
    return at_;
  }
  void go_to(std::size_t at) { at_ = at; }
  bool ended() { return position() >= text_.size(); }
  char peek() { return ended() ? '\0' : text_[at_]; }
  char take();
  bool take_if(char c);
  void expect(char c);
  std::string_view word();
  void to_end_of_line();

 private:
  void skip();

  std::string_view text_;
  std::size_t at_;
};

std::vector<std::string_view> split(std::string_view text, char at);
// Throws Fault.
std::uint64_t number_of(std::string_view digits, int base);
// Of a type's name, without the dot; 1 for predicates, 0: not a type.
unsigned bytes_of_type(std::string_view type);

}  // namespace ptx
