// Reads a kernel's body statement by statement.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tests/emulator/ptx/decode/instruction_maker.h"
#include "tests/emulator/ptx/decode/module.h"
#include "tests/emulator/ptx/decode/operand.h"
#include "tests/emulator/ptx/decode/ptx_program.h"
#include "tests/emulator/ptx/decode/registers.h"
#include "tests/emulator/ptx/decode/text_reader.h"

namespace ptx {

class Decoder {
 public:
  // Throws Fault, with the line.
  Decoder(const Module& module, const Module::Body& body, const std::string& name);
  std::unique_ptr<Program> take() { return std::move(program_); }

 private:
  struct Jump {
    std::size_t at;
    std::string label;
    std::uint32_t line;
  };

  std::uint32_t line_now();
  void header();
  void parameter();
  void header_directive();
  void statements(std::size_t end, const std::string* after);
  void directive();
  void declare_registers();
  void pragma();
  void statement(const std::string* after);
  void guard(Instruction& i);
  void branch(Instruction i, std::string_view label, const std::string& instance);
  void call(const std::vector<Operand>& operands);
  void bind(const std::vector<Operand>& given);
  void resolve_labels();

  const Module& module_;
  TextReader reader_;
  std::unique_ptr<Program> program_;
  Registers registers_;
  InstructionMaker maker_;
  std::vector<Jump> jumps_;
  std::unordered_map<std::string, std::uint32_t> labels_;
  std::string instance_;  // of an inlined function: makes its labels its own
  unsigned calls_ = 0, depth_ = 0;
  std::uint32_t line_ = 1, statement_line_ = 1;
  std::size_t line_at_ = 0;
};

}  // namespace ptx
