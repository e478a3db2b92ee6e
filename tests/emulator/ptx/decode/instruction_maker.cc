// Looks up what an opcode does, and checks the widths of its operands.
#include "tests/emulator/ptx/decode/instruction_maker.h"

#include <algorithm>
#include <utility>

#include "tests/emulator/ptx/decode/text_reader.h"

namespace ptx {
namespace {

unsigned bytes_of_letter(char letter) {
  return letter == 'p' ? 1 : letter == 'h' ? 2 : letter == 'd' ? 8 : 4;
}

std::string unknown(const std::vector<std::string_view>& words) {
  std::string text = "unknown instruction ";
  for (std::size_t n = 0; n < words.size(); ++n) {
    if (n > 0) text += '.';
    text += words[n];
  }
  return text;
}

}  // namespace

void InstructionMaker::make(Instruction i, std::string_view opcode,
                            const std::vector<Operand>& given) {
  const Words words = split(opcode, '.');
  const std::string_view name = words[0];
  if (name == "mov") {
    move(i, words, given);
  } else if (name == "ld" || name == "st") {
    access(i, words, given);
  } else if (name == "cvt" && integer_conversion(i, words, given)) {
  } else if (name == "cp" && words.at(1) == "async" && words.size() >= 5 && words[2] != "bulk") {
    copy_async(i, opcode, given);
  } else if (name == "wgmma" && words.at(1) == "mma_async") {
    warpgroup_product(i, opcode, given);
  } else {
    plain(i, opcode, given);
  }
}

void InstructionMaker::plain(Instruction i, std::string_view opcode,
                             const std::vector<Operand>& given) {
  const Form* form = find_form(opcode);
  std::vector<const Operand*> flat;
  for (const Operand& o : given) {
    if (o.what != Operand::kList) flat.push_back(&o);
    for (const Operand& part : o.parts) flat.push_back(&part);
  }
  AsynchronousForm other;
  if (form == nullptr) {
    other = find_asynchronous_form(opcode, flat.size());
    if (other.run == nullptr) throw Fault("unknown instruction " + std::string(opcode));
    i.immediate = other.option;
    program_.needs_history |= other.needs_history;
  }
  const std::string_view letters = form != nullptr ? form->operands : other.operands;
  i.run = form != nullptr ? form->run : other.run;
  i.kind = form != nullptr ? form->kind : other.kind;
  std::vector<std::uint32_t> slots;
  std::size_t n = 0;
  bool results = true;
  for (const char letter : letters) {
    if (letter == '=') {
      results = false;
      continue;
    }
    if (n == flat.size()) throw Fault("too few operands of " + std::string(opcode));
    const Operand& o = *flat[n++];
    if (results) {
      slots.push_back(result(o, bytes_of_letter(letter)));
      ++i.results;
    } else if (letter == 'n') {
      if (o.what != Operand::kNumber) throw Fault("a number is expected");
      i.immediate = static_cast<std::int32_t>(o.bits);
    } else if (letter == 'a') {
      slots.push_back(address(i, o, true));
    } else if (letter == 's' || letter == 'g') {
      slots.push_back(plain_address(o, letter == 's'));
    } else {
      if (letter == 'm') i.mask_slot = static_cast<std::uint8_t>(slots.size());
      slots.push_back(value(o, bytes_of_letter(letter)));
    }
  }
  if (n != flat.size()) throw Fault("too many operands of " + std::string(opcode));
  set_slots(i, slots);
  add(i);
}

void InstructionMaker::move(Instruction i, const Words& words, const std::vector<Operand>& given) {
  if (words.size() != 2 || given.size() != 2) throw Fault("unknown form of mov");
  const unsigned bytes = bytes_of_type(words[1]);
  if (bytes == 0) throw Fault("mov of type " + std::string(words[1]));
  std::vector<std::uint32_t> slots;
  const bool splits = given[0].what == Operand::kList, joins = given[1].what == Operand::kList;
  if (splits || joins) {
    const std::vector<Operand>& parts = given[splits ? 0 : 1].parts;
    const auto count = static_cast<unsigned>(parts.size());
    const unsigned each = bytes / std::max(count, 1u);
    i.run = splits ? split_of(each, count) : join_of(each, count);
    if (i.run == nullptr || each * count != bytes) throw Fault("unknown form of mov");
    i.results = static_cast<std::uint8_t>(splits ? count : 1);
    if (!splits) slots.push_back(result(given[0], bytes));
    for (const Operand& part : parts)
      slots.push_back(splits ? result(part, each) : value(part, each));
    if (splits) slots.push_back(value(given[1], bytes));
  } else {
    i.run = copy_of(bytes);
    i.results = 1;
    slots = {result(given[0], bytes), value(given[1], bytes)};
  }
  set_slots(i, slots);
  add(i);
}

void InstructionMaker::access(Instruction i, const Words& words,
                              const std::vector<Operand>& given) {
  const bool load = words[0] == "ld";
  std::size_t n = 1;
  const auto is_vector = [&] { return n < words.size() && (words[n] == "v2" || words[n] == "v4"); };
  // A generic address: only addresses of global memory are made generic (cvta).
  const bool generic = is_vector() || (n < words.size() && bytes_of_type(words[n]) != 0);
  const std::string_view space = generic ? "global" : n < words.size() ? words[n++] : "";
  unsigned parts = 1;
  if (is_vector()) parts = words[n++] == "v2" ? 2 : 4;
  const unsigned bytes = n + 1 == words.size() ? bytes_of_type(words[n]) : 0;
  if (bytes == 0 || given.size() != 2) throw Fault(unknown(words));
  const bool is_signed = words[n][0] == 's';
  const Operand &data = given[load ? 0 : 1], &where = given[load ? 1 : 0];
  if (where.what != Operand::kAddress) throw Fault("an address is expected");
  if (space == "param" && !where.has_base) {
    if (const auto parameter = registers_.find_parameter(where.name)) {
      if (parts != 1 || where.offset != 0 || registers_.bytes(*parameter) != bytes)
        throw Fault(unknown(words));
      return access_parameter(i, *parameter, load, data);
    }
  }
  i.run = load ? find_load(space, bytes, parts, is_signed) : find_store(space, bytes, parts);
  if (i.run == nullptr) throw Fault(unknown(words));
  const std::vector<Operand> list = data.what == Operand::kList ? data.parts : std::vector{data};
  if (list.size() != parts) throw Fault("another number of registers than of elements");
  std::vector<std::uint32_t> slots;
  for (const Operand& o : list) {
    unsigned width = bytes;  // registers may be wider than the data
    if (o.what == Operand::kRegister) width = registers_.bytes(o.reg);
    if (width < bytes || width == 1) throw Fault("a register that is too narrow");
    if (i.data_width != 0 && i.data_width != width) throw Fault("registers of several widths");
    i.data_width = static_cast<std::uint8_t>(width);
    slots.push_back(load ? result(o, width) : value(o, width));
  }
  if (load) i.used_bytes = std::exchange(used_bytes_, std::uint8_t{0});
  const std::uint32_t place = address(i, where, space.substr(0, 6) == "shared");
  slots.insert(load ? slots.end() : slots.begin(), place);
  i.results = static_cast<std::uint8_t>(load ? parts : 0);
  set_slots(i, slots);
  add(i);
}

// Of a call: it is a register.
void InstructionMaker::access_parameter(Instruction i, std::uint32_t parameter, bool load,
                                        const Operand& data) {
  const unsigned bytes = registers_.bytes(parameter);
  i.run = copy_of(bytes);
  i.results = 1;
  if (load)
    set_slots(i, {result(data, bytes), parameter});
  else
    set_slots(i, {parameter, value(data, bytes)});
  add(i);
}

// Between integers: "cvt.s64.s32".
bool InstructionMaker::integer_conversion(Instruction i, const Words& words,
                                          const std::vector<Operand>& given) {
  if (words.size() != 3 || words[1][0] == 'f' || words[2][0] == 'f' || given.size() != 2)
    return false;
  const unsigned to = bytes_of_type(words[1]), from = bytes_of_type(words[2]);
  if (to == 0 || from == 0 || given[1].what != Operand::kRegister) return false;
  const unsigned width = registers_.bytes(given[1].reg);
  const unsigned wide = given[0].what == Operand::kRegister ? registers_.bytes(given[0].reg) : to;
  if (width < from || wide < to) throw Fault("a register that is too narrow");
  // To a narrower type than the register, as of s8: cut, then extended again.
  const bool cut = to < wide;
  if (cut && to > from) throw Fault(unknown(words));
  i.run = find_integer_conversion(wide, cut ? to : from, words[cut ? 1 : 2][0] == 's');
  if (i.run == nullptr) return false;
  i.width = static_cast<std::uint8_t>(width);
  i.results = 1;
  set_slots(i, {result(given[0], wide), given[1].reg});
  add(i);
  return true;
}

void InstructionMaker::copy_async(Instruction i, std::string_view opcode,
                                  const std::vector<Operand>& given) {
  if ((opcode != "cp.async.cg.shared.global" && opcode != "cp.async.ca.shared.global") ||
      given.size() < 3 || given.size() > 4 || given[2].what != Operand::kNumber)
    throw Fault("unknown instruction " + std::string(opcode));
  char form = 'n';
  std::vector<std::uint32_t> slots = {address(i, given[0], true), 0};
  if (i.width != 4 || i.immediate != 0) throw Fault("cp.async with an offset");
  slots[1] = address(i, given[1], false);
  if (i.immediate != 0) throw Fault("cp.async with an offset");
  if (given.size() == 4) {
    const bool ignores = given[3].what == Operand::kRegister && registers_.bytes(given[3].reg) == 1;
    form = ignores ? 'i' : 's';
    slots.push_back(value(given[3], ignores ? 1 : 4));
  }
  i.run = copy_async_of(static_cast<unsigned>(given[2].bits), form);
  if (i.run == nullptr || (opcode == "cp.async.cg.shared.global" && given[2].bits != 16))
    throw Fault("cp.async of " + std::to_string(given[2].bits) + " bytes");
  set_slots(i, slots);
  add(i);
}

// D, A's descriptor, B's, whether to add, signs of A and B, which of them are transposed.
void InstructionMaker::warpgroup_product(Instruction i, std::string_view opcode,
                                         const std::vector<Operand>& given) {
  if (given.size() != 8 || given[0].what != Operand::kList)
    throw Fault("unknown form of " + std::string(opcode));
  for (std::size_t n = 4; n < 8; ++n)
    if (given[n].what != Operand::kNumber || given[n].bits > 1 || (n < 6 && given[n].bits != 1))
      throw Fault("unknown form of " + std::string(opcode));
  const std::size_t sums = given[0].parts.size();
  i.run = warpgroup_product_of(opcode, sums, given[6].bits == 1, given[7].bits == 1);
  if (i.run == nullptr) throw Fault("unknown instruction " + std::string(opcode));
  i.kind = Kind::kWholeWarp;
  i.slots = 3;
  i.slot = {value(given[1], 8), value(given[2], 8), value(given[3], 1)};
  i.target = static_cast<std::uint32_t>(program_.more.size());
  i.more = i.more_results = static_cast<decltype(i.more)>(sums);
  for (const Operand& o : given[0].parts) program_.more.push_back(result(o, 4));
  program_.uses_wgmma = true;
  add(i);
}

std::uint32_t InstructionMaker::value(const Operand& o, unsigned bytes) {
  if (o.negated) throw Fault("a negated operand");
  switch (o.what) {
    case Operand::kRegister:
      if (registers_.bytes(o.reg) != bytes)
        throw Fault("a register of " + std::to_string(8 * registers_.bytes(o.reg)) +
                    " bits where " + std::to_string(8 * bytes) + " are expected");
      return o.reg;
    case Operand::kNumber:
      return registers_.constant(bytes, bytes == 1 ? (o.bits != 0 ? 1 : 0) : o.bits);
    case Operand::kFloat32:
      if (bytes != 4) throw Fault("a number of f32");
      return registers_.constant(4, o.bits);
    case Operand::kFloat64:
      if (bytes != 8) throw Fault("a number of f64");
      return registers_.constant(8, o.bits);
    case Operand::kName:
      return registers_.constant(bytes, address_of(o.name));
    default:
      throw Fault("an operand of another kind is expected");
  }
}

std::uint32_t InstructionMaker::result(const Operand& o, unsigned bytes) {
  if (o.what == Operand::kSink) return registers_.add(bytes);
  if (o.what != Operand::kRegister) throw Fault("a register is expected");
  return value(o, bytes);
}

// Of the block's shared memory, which is all dynamic and begins at one place; or of a parameter.
std::uint64_t InstructionMaker::address_of(std::string_view name) const {
  if (const auto found = parameter_offset_.find(name); found != parameter_offset_.end())
    return found->second;
  if (name.find("engine_block_shared") != std::string_view::npos) return kSharedStart;
  throw Fault("unknown name " + std::string(name));
}

void InstructionMaker::set_slots(Instruction& i, const std::vector<std::uint32_t>& slots) {
  const std::size_t inside = std::min(slots.size(), i.slot.size());
  i.slots = static_cast<std::uint8_t>(inside);
  std::copy_n(slots.begin(), inside, i.slot.begin());
  i.target = static_cast<std::uint32_t>(program_.more.size());
  i.more = static_cast<std::uint8_t>(slots.size() - inside);
  program_.more.insert(program_.more.end(), slots.begin() + static_cast<std::ptrdiff_t>(inside),
                       slots.end());
}

std::uint32_t InstructionMaker::address(Instruction& i, const Operand& o, bool shared) {
  if (o.what != Operand::kAddress) throw Fault("an address is expected");
  i.immediate = static_cast<std::int32_t>(o.offset);
  if (i.immediate != o.offset) throw Fault("an offset beyond 32 bits");
  if (!o.has_base) {
    i.width = shared ? 4 : 8;
    return registers_.constant(i.width, address_of(o.name));
  }
  i.width = static_cast<std::uint8_t>(registers_.bytes(o.reg));
  if (i.width != 8 && !(shared && i.width == 4)) throw Fault("an address in another register");
  return o.reg;
}

std::uint32_t InstructionMaker::plain_address(const Operand& o, bool shared) {
  Instruction unused;
  const std::uint32_t reg = address(unused, o, shared);
  if (unused.immediate != 0) throw Fault("an address with an offset: not known here");
  if (unused.width != (shared ? 4 : 8)) throw Fault("an address in another register");
  return reg;
}

}  // namespace ptx
