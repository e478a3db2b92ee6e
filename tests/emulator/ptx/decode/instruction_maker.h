// Makes an Instruction of an opcode and its operands.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tests/emulator/ptx/decode/operand.h"
#include "tests/emulator/ptx/decode/ptx_program.h"
#include "tests/emulator/ptx/decode/registers.h"

namespace ptx {

class InstructionMaker {
 public:
  InstructionMaker(Program& program, Registers& registers)
      : program_(program), registers_(registers) {}

  // Of the kernel's parameters, from their start.
  void set_offset(std::string_view parameter, std::uint32_t bytes) {
    parameter_offset_[parameter] = bytes;
  }
  // Of the next load: the program needs no others.
  void set_used_bytes(std::uint8_t bytes) { used_bytes_ = bytes; }

  // Adds it to the program. `i` has the line and the guard. Throws Fault for what is not known.
  void make(Instruction i, std::string_view opcode, const std::vector<Operand>& given);

 private:
  using Words = std::vector<std::string_view>;

  void plain(Instruction i, std::string_view opcode, const std::vector<Operand>& given);
  void move(Instruction i, const Words& words, const std::vector<Operand>& given);
  void access(Instruction i, const Words& words, const std::vector<Operand>& given);
  void access_parameter(Instruction i, std::uint32_t parameter, bool load, const Operand& data);
  bool integer_conversion(Instruction i, const Words& words, const std::vector<Operand>& given);
  void copy_async(Instruction i, std::string_view opcode, const std::vector<Operand>& given);
  void warpgroup_product(Instruction i, std::string_view opcode, const std::vector<Operand>& given);

  // As an operand of so many bytes.
  std::uint32_t value(const Operand& o, unsigned bytes);
  std::uint32_t result(const Operand& o, unsigned bytes);
  std::uint64_t address_of(std::string_view name) const;
  // The register with the address; the offset into i.immediate.
  std::uint32_t address(Instruction& i, const Operand& o, bool shared);
  std::uint32_t plain_address(const Operand& o, bool shared);
  void set_slots(Instruction& i, const std::vector<std::uint32_t>& slots);
  void add(const Instruction& i) { program_.code.push_back(i); }

  Program& program_;
  Registers& registers_;
  std::unordered_map<std::string_view, std::uint32_t> parameter_offset_;
  std::uint8_t used_bytes_ = 0;
};

}  // namespace ptx
