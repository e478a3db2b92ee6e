// The registers of a kernel while its PTX is read: names in scopes, constants and special
// registers. They are numbers until all are known; then each gets its place.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/emulator/ptx/decode/ptx_program.h"

namespace ptx {

class Registers {
 public:
  void enter() { scopes_.emplace_back(); }
  void leave() { scopes_.pop_back(); }
  std::size_t depth() const { return scopes_.size(); }

  std::uint32_t add(unsigned bytes);
  void declare(std::string_view name, unsigned bytes) {
    scopes_.back().registers[name] = add(bytes);
  }
  void declare_family(std::string_view name, unsigned bytes, std::uint32_t count);
  // Of calls, where they are as registers.
  void declare_parameter(std::string_view name, std::uint32_t reg) {
    scopes_.back().parameters[name] = reg;
  }

  unsigned bytes(std::uint32_t reg) const { return bytes_[reg]; }
  std::optional<std::uint32_t> find(std::string_view name) const;
  std::optional<std::uint32_t> find_parameter(std::string_view name) const;
  std::uint32_t constant(unsigned bytes, std::uint64_t bits);
  // "%tid.x" and the like; throws Fault for others.
  std::uint32_t special(std::string_view name);

  // Puts places where `program` has numbers, and adds the constants and special registers.
  void place_in(Program& program) const;

 private:
  struct Family {
    std::uint32_t first, count;
  };
  struct Scope {
    std::unordered_map<std::string_view, std::uint32_t> registers, parameters;
    std::unordered_map<std::string_view, Family> families;
  };
  struct Span {  // from the first to the last instruction that needs a register
    std::uint32_t first = ~0u, last = 0;
    bool read_first = false;

    bool used() const { return first != ~0u; }
  };
  std::vector<Span> spans_in(const Program& program) const;
  // One a register, by number; and the size of all, in bytes.
  std::vector<std::uint32_t> places_of(const std::vector<Span>& spans, std::size_t& end) const;

  std::vector<unsigned> bytes_;
  std::vector<Scope> scopes_;
  std::map<std::pair<unsigned, std::uint64_t>, std::uint32_t> constants_;
  std::map<std::pair<Special, unsigned>, std::uint32_t> specials_;
};

}  // namespace ptx
