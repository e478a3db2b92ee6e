// A kernel's PTX in the form in which it is run: one Instruction a statement, with its function,
// and places of registers instead of names. How the parts fit together: interpreter.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace ptx {

constexpr unsigned kLanes = 32;
using Mask = std::uint32_t;
constexpr Mask kAllLanes = ~Mask{0};

// What is wrong with a kernel or with its PTX, in words.
class Fault : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

struct Warp;
struct Instruction;
using Handler = void (*)(Warp&, const Instruction&);

enum class Kind : std::uint8_t {
  kPlain,
  kBranch,      // to `target`
  kExit,        // of the guarded lanes
  kBarrier,     // all lanes of the warp that have not ended, together; they may then have to wait
  kWholeWarp,   // all 32 lanes together (.aligned)
  kMemberMask,  // the lanes that operand `mask_slot` names, together
  kPoll,        // asks whether something has happened: in vain, others come first
};

// Operands are places in a warp's register file: bytes from its start. A register of b bytes is an
// array of 32 elements, one a lane; a predicate is a byte, 0 or 1.
struct Instruction {
  Handler run = nullptr;
  std::array<std::uint32_t, 6> slot{};  // results first
  std::uint32_t guard = 0;
  std::uint32_t target = 0;  // of a branch; or where the operands beyond six are in Program::more
  std::uint32_t line = 0;    // of the PTX
  std::int32_t immediate = 0;
  Kind kind = Kind::kPlain;
  bool guarded = false, negated = false;
  std::uint8_t results = 0, slots = 0;  // how many of `slot`; of results
  std::uint8_t more = 0, more_results = 0;
  std::uint8_t width = 0;       // bytes of the register that a conversion reads or an address is in
  std::uint8_t data_width = 0;  // bytes of the registers that a load fills or a store reads
  std::uint8_t mask_slot = 0;
  std::uint8_t used_bytes = 0;  // of a load, where these first ones alone are the program's
};

// What a register holds that no instruction writes.
enum class Special : std::uint8_t {
  kTid,
  kNtid,
  kCtaid,
  kNctaid,
  kLane,
  kWarp,
  kClusterid,
  kNclusterid,
  kClusterCtaid,
  kClusterNctaid,
  kClusterCtarank,
  kClusterNctarank,
};

struct Program {
  std::string name, file;  // mangled; path of the PTX
  std::vector<Instruction> code;
  std::vector<std::uint32_t> more;
  struct Constant {
    std::uint32_t slot, bytes;
    std::uint64_t bits;
  };
  std::vector<Constant> constants;
  struct SpecialUse {
    std::uint32_t slot;
    Special what;
    unsigned axis;
  };
  std::vector<SpecialUse> specials;
  struct Parameter {
    std::uint32_t offset, bytes, alignment;
  };
  std::vector<Parameter> parameters;
  std::uint32_t parameter_bytes = 0;
  std::size_t register_bytes = 0;
  unsigned max_threads = 1024;
  unsigned max_registers = 0;         // .maxnreg; 0: not said
  unsigned min_blocks = 1;            // .minnctapersm
  std::array<unsigned, 3> cluster{};  // .reqnctapercluster; 0: not said
  bool uses_wgmma = false;
  // Warps meet otherwise than all of a block at once, or copies come from outside of them.
  bool needs_history = false;
  struct Place {
    std::uint32_t instruction, file, line;
  };
  std::vector<Place> places;  // .loc, by instruction

  // "file.ptx:LINE (source.cu:LINE)" of an instruction.
  std::string where(std::uint32_t instruction) const;
};

// Shared memory begins here in its address space, so that an address of zero is a fault; no more
// aligned than a kernel may ask for (128).
constexpr std::uint32_t kSharedStart = 1024 + 128;

// What an opcode is: its function, and its operands in the letters
//   p predicate, h 16 bits, w 32 bits, d 64 bits; '=' after the results.
// Null: no such instruction is known here.
struct Form {
  Handler run;
  std::string_view operands;
  Kind kind = Kind::kPlain;
};
const Form* find_form(std::string_view opcode);
// The same of mbarriers, copies in bulk, clusters and named barriers (asynchronous_forms.cc), whose
// operands depend on their modifiers: more letters are
//   s an address of shared memory, g a 64-bit address, both without an offset.
// `option` becomes Instruction::immediate.
struct AsynchronousForm {
  Handler run = nullptr;
  std::string operands;
  Kind kind = Kind::kPlain;
  std::int32_t option = 0;
  bool needs_history = true;
};
AsynchronousForm find_asynchronous_form(std::string_view opcode, std::size_t operands);

// Loads and stores: `space` is "global", "shared" or "param"; null: unknown.
Handler find_load(std::string_view space, unsigned bytes, unsigned parts, bool is_signed);
Handler find_store(std::string_view space, unsigned bytes, unsigned parts);
// cvt between integers: a register of `width` bytes whose lowest `from_bytes` are extended.
Handler find_integer_conversion(unsigned to_bytes, unsigned from_bytes, bool is_signed);
Handler copy_of(unsigned bytes);                        // mov
Handler join_of(unsigned part_bytes, unsigned parts);   // mov d, {a, b}
Handler split_of(unsigned part_bytes, unsigned parts);  // mov {a, b}, d
Handler copy_async_of(unsigned bytes, char form);  // 'n': no fourth operand, 's': size, 'i': ignore
Handler warpgroup_product_of(std::string_view opcode, std::size_t sums, bool across_a,
                             bool across_b);

}  // namespace ptx
