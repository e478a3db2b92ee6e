// An operand as it stands in the PTX.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tests/emulator/ptx/decode/registers.h"
#include "tests/emulator/ptx/decode/text_reader.h"

namespace ptx {

struct Operand {
  enum { kRegister, kNumber, kFloat32, kFloat64, kAddress, kList, kName, kSink } what;
  std::uint32_t reg = 0;
  bool negated = false;
  std::uint64_t bits = 0;
  std::int64_t offset = 0;
  bool has_base = false;
  std::string_view name;
  std::vector<Operand> parts;
};

// Throws Fault where there is none.
Operand read_operand(TextReader& reader, Registers& registers);

}  // namespace ptx
