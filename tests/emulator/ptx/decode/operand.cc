// Reads an operand: a register, a number, an address, a list.
#include "tests/emulator/ptx/decode/operand.h"

#include <string>

namespace ptx {
namespace {

std::int64_t signed_number(TextReader& reader) {
  const bool negative = reader.take_if('-');
  const std::uint64_t size = number_of(reader.word(), 10);
  return static_cast<std::int64_t>(negative ? 0 - size : size);
}

Operand list(TextReader& reader, Registers& registers, char end) {
  reader.take();
  Operand o{};
  o.what = Operand::kList;
  if (end == ')' && reader.take_if(end)) return o;  // only a list of parameters may be empty
  do o.parts.push_back(read_operand(reader, registers));
  while (reader.take_if(','));
  reader.expect(end);
  return o;
}

Operand address(TextReader& reader, Registers& registers) {
  reader.expect('[');
  Operand o = read_operand(reader, registers);
  o.offset = 0;
  if (reader.take_if('+')) o.offset = signed_number(reader);
  if (reader.take_if(',')) {  // of a tensor map: the place in the tensor
    if (reader.peek() != '{') throw Fault("'{' expected");
    o.parts = list(reader, registers, '}').parts;
  }
  reader.expect(']');
  if (o.what == Operand::kNumber) throw Fault("an address that is a number");
  o.has_base = o.what == Operand::kRegister;
  o.what = Operand::kAddress;
  return o;
}

// A number, or a name.
void read_word(TextReader& reader, Registers& registers, Operand& o) {
  const std::string_view word = reader.word();
  const char form = word.size() > 2 && word[0] == '0' ? word[1] : '\0';
  if (word == "_") {
    o.what = Operand::kSink;
  } else if (word[0] >= '0' && word[0] <= '9') {
    const bool f32 = form == 'f' || form == 'F', f64 = form == 'd' || form == 'D';
    o.what = f32 ? Operand::kFloat32 : f64 ? Operand::kFloat64 : Operand::kNumber;
    o.bits = f32 || f64 || form == 'x' ? number_of(word.substr(2), 16) : number_of(word, 10);
  } else if (const auto reg = registers.find(word)) {
    o.what = Operand::kRegister;
    o.reg = *reg;
  } else if (word[0] == '%') {
    o.what = Operand::kRegister;
    o.reg = registers.special(word);
  } else {
    o.what = Operand::kName;
    o.name = word;
  }
}

}  // namespace

Operand read_operand(TextReader& reader, Registers& registers) {
  Operand o{};
  switch (reader.peek()) {
    case '{':
      return list(reader, registers, '}');
    case '(':
      return list(reader, registers, ')');
    case '[':
      return address(reader, registers);
    case '!':
      reader.take();
      o = read_operand(reader, registers);
      o.negated = true;
      return o;
    case '-':
      o.what = Operand::kNumber;
      o.bits = static_cast<std::uint64_t>(signed_number(reader));
      return o;
    default:
      break;
  }
  read_word(reader, registers, o);
  if (!reader.take_if('|')) return o;
  Operand both{};  // a second result
  both.what = Operand::kList;
  both.parts = {o, read_operand(reader, registers)};
  return both;
}

}  // namespace ptx
