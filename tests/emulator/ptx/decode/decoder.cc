// From the text of a kernel to its statements.
#include "tests/emulator/ptx/decode/decoder.h"

#include <algorithm>
#include <bit>

namespace ptx {

Decoder::Decoder(const Module& module, const Module::Body& body, const std::string& name)
    : module_(module),
      reader_(module.text_, body.header),
      program_(new Program),
      maker_(*program_, registers_) {
  program_->name = name;
  program_->file = module.path_;
  line_at_ = body.header;
  line_ = module.line_of(body.header);
  try {
    header();
    reader_.go_to(body.begin);
    registers_.enter();
    statements(body.end, nullptr);
    registers_.leave();
    if (program_->code.empty() || program_->code.back().kind != Kind::kExit) {
      Instruction end;
      end.line = statement_line_;
      end.run = find_form("ret")->run;
      end.kind = Kind::kExit;
      program_->code.push_back(end);
    }
    resolve_labels();
    registers_.place_in(*program_);
  } catch (const Fault& fault) {
    throw Fault(module.path_ + ":" + std::to_string(line_now()) + ": " + fault.what() + " (in " +
                name + ")");
  }
}

std::uint32_t Decoder::line_now() {
  const std::size_t at = reader_.position();
  if (at < line_at_) {  // a function's body may be before the kernel's
    line_ = module_.line_of(at);
  } else {
    line_ += static_cast<std::uint32_t>(
        std::count(module_.text_.begin() + static_cast<std::ptrdiff_t>(line_at_),
                   module_.text_.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
  }
  line_at_ = at;
  return line_;
}

// ".entry NAME ( .param .type NAME[n], ... ) .maxntid 256, 1, 1 ... {"
void Decoder::header() {
  reader_.word();
  reader_.word();
  reader_.expect('(');
  while (!reader_.take_if(')')) {
    parameter();
    reader_.take_if(',');
  }
  while (reader_.peek() != '{') header_directive();
}

void Decoder::parameter() {
  std::uint32_t alignment = 0;
  if (reader_.word() != ".param") throw Fault(".param expected");
  std::string_view word = reader_.word();
  if (word == ".align") {
    alignment = static_cast<std::uint32_t>(number_of(reader_.word(), 10));
    word = reader_.word();
  }
  std::uint32_t bytes = bytes_of_type(word.substr(1));
  if (bytes == 0) throw Fault("a parameter of type " + std::string(word));
  if (alignment == 0) alignment = bytes;
  const std::string_view name = reader_.word();
  if (reader_.take_if('[')) {
    bytes *= static_cast<std::uint32_t>(number_of(reader_.word(), 10));
    reader_.expect(']');
  }
  std::uint32_t& end = program_->parameter_bytes;
  end = (end + alignment - 1) / alignment * alignment;
  maker_.set_offset(name, end);
  program_->parameters.push_back({end, bytes, alignment});
  end += bytes;
}

void Decoder::header_directive() {
  const auto number = [this] { return static_cast<unsigned>(number_of(reader_.word(), 10)); };
  const std::string_view word = reader_.word();
  if (word == ".maxntid" || word == ".reqntid") {
    program_->max_threads = number();
    while (reader_.take_if(',')) program_->max_threads *= number();
  } else if (word == ".minnctapersm") {
    program_->min_blocks = number();
  } else if (word == ".maxnreg") {
    program_->max_registers = number();
  } else if (word == ".reqnctapercluster") {
    program_->cluster = {1, 1, 1};
    for (unsigned& blocks : program_->cluster) {
      blocks = number();
      if (!reader_.take_if(',')) break;
    }
    program_->needs_history = true;
  } else if (word != ".explicitcluster") {
    throw Fault("unknown directive " + std::string(word));
  }
}

// Until `end`. Within a function `after` is the label that `ret` goes to.
void Decoder::statements(std::size_t end, const std::string* after) {
  const std::size_t outer = registers_.depth();
  while (reader_.position() < end) {
    statement_line_ = line_now();
    const char next = reader_.peek();
    if (next == '{') {
      reader_.take();
      registers_.enter();
    } else if (next == '}') {
      reader_.take();
      if (registers_.depth() == outer) throw Fault("a '}' too many");
      registers_.leave();
    } else if (next == '.') {
      directive();
    } else {
      statement(after);
    }
  }
}

void Decoder::directive() {
  const std::string_view word = reader_.word();
  if (word == ".loc") {
    const auto file = static_cast<std::uint32_t>(number_of(reader_.word(), 10)),
               line = static_cast<std::uint32_t>(number_of(reader_.word(), 10));
    reader_.to_end_of_line();
    if (line != 0)
      program_->places.push_back({static_cast<std::uint32_t>(program_->code.size()), file, line});
  } else if (word == ".pragma") {
    pragma();
  } else if (word == ".reg") {
    declare_registers();
  } else if (word == ".param") {
    const std::string_view type = reader_.word();
    const unsigned bytes = bytes_of_type(type.substr(1));
    if (bytes == 0) throw Fault("a call's parameter of type " + std::string(type));
    registers_.declare_parameter(reader_.word(), registers_.add(bytes));
    reader_.expect(';');
  } else {
    throw Fault("unknown directive " + std::string(word));
  }
}

void Decoder::declare_registers() {
  const std::string_view type = reader_.word();
  const unsigned bytes = bytes_of_type(type.substr(1));
  if (bytes == 0) throw Fault("registers of type " + std::string(type));
  do {
    const std::string_view name = reader_.word();
    if (reader_.take_if('<')) {
      const auto count = static_cast<std::uint32_t>(number_of(reader_.word(), 10));
      reader_.expect('>');
      registers_.declare_family(name, bytes, count);
    } else {
      registers_.declare(name, bytes);
    }
  } while (reader_.take_if(','));
  reader_.expect(';');
}

// "nounroll" is for ptxas. "used_bytes_mask M" says which bytes of the next load the program
// needs, of a load that nvcc has made wider: the others may be beyond what there is.
void Decoder::pragma() {
  reader_.expect('"');
  const std::string_view word = reader_.word();
  if (word == "used_bytes_mask") {
    const std::uint64_t mask = number_of(reader_.word(), 10);
    maker_.set_used_bytes(static_cast<std::uint8_t>(std::bit_width(mask)));
  } else if (word != "nounroll") {
    throw Fault("unknown pragma " + std::string(word));
  }
  reader_.expect('"');
  reader_.expect(';');
}

// "@!p mov.u32 a, b;", or a label.
void Decoder::statement(const std::string* after) {
  Instruction i;
  i.line = statement_line_;
  if (reader_.take_if('@')) guard(i);
  const std::string_view opcode = reader_.word();
  if (!i.guarded && reader_.take_if(':')) {
    const auto here = static_cast<std::uint32_t>(program_->code.size());
    if (!labels_.emplace(std::string(opcode) + instance_, here).second)
      throw Fault("the label " + std::string(opcode) + " stands here twice");
    return;
  }
  std::vector<Operand> operands;
  if (reader_.peek() != ';') do
      operands.push_back(read_operand(reader_, registers_));
    while (reader_.take_if(','));
  reader_.expect(';');
  const std::string_view name = opcode.substr(0, opcode.find('.'));
  if (name == "bra")
    branch(i, operands.at(0).name, instance_);
  else if (name == "call")
    call(operands);
  else if (name == "ret" && after != nullptr)
    branch(i, *after, "");
  else
    maker_.make(i, opcode, operands);
}

void Decoder::guard(Instruction& i) {
  i.guarded = true;
  i.negated = reader_.take_if('!');
  const std::string_view name = reader_.word();
  const auto predicate = registers_.find(name);
  if (!predicate || registers_.bytes(*predicate) != 1)
    throw Fault("no such predicate: " + std::string(name));
  i.guard = *predicate;
}

void Decoder::branch(Instruction i, std::string_view label, const std::string& instance) {
  i.kind = Kind::kBranch;
  jumps_.push_back({program_->code.size(), std::string(label) + instance, statement_line_});
  program_->code.push_back(i);
}

// The function's body in place of the call: its parameters are registers.
void Decoder::call(const std::vector<Operand>& operands) {
  std::vector<Operand> results, arguments;
  std::string_view name;
  for (const Operand& o : operands) {
    if (o.what == Operand::kName)
      name = o.name;
    else if (o.what == Operand::kList)
      (name.empty() ? results : arguments) = o.parts;
  }
  const Module::Body* body = module_.function(name);
  if (body == nullptr) throw Fault("a call of " + std::string(name) + ", which is not here");
  if (depth_ == 8) throw Fault("functions that call each other");
  const std::size_t back = reader_.position();
  const std::string outer = instance_;
  const std::string after = "after call " + std::to_string(++calls_);
  instance_ = "@" + std::to_string(calls_);
  ++depth_;
  registers_.enter();
  reader_.go_to(body->header);
  reader_.word();
  if (reader_.peek() == '(') bind(results);
  reader_.word();
  bind(arguments);
  reader_.go_to(body->begin);
  statements(body->end, &after);
  registers_.leave();
  --depth_;
  instance_ = outer;
  labels_[after] = static_cast<std::uint32_t>(program_->code.size());
  reader_.go_to(back);
  statement_line_ = line_now();
}

// A function's parameters to what a call gives.
void Decoder::bind(const std::vector<Operand>& given) {
  reader_.expect('(');
  std::size_t n = 0;
  while (!reader_.take_if(')')) {
    if (reader_.word() != ".param") throw Fault(".param expected");
    reader_.word();
    const std::string_view name = reader_.word();
    if (n >= given.size()) throw Fault("a call with too few arguments");
    const auto reg = registers_.find_parameter(given[n++].name);
    if (!reg) throw Fault("a call's argument that is no parameter");
    registers_.declare_parameter(name, *reg);
    reader_.take_if(',');
  }
  if (n != given.size()) throw Fault("a call with too many arguments");
}

void Decoder::resolve_labels() {
  for (const auto& [at, label, line] : jumps_) {
    const auto found = labels_.find(label);
    if (found == labels_.end())
      throw Fault("a branch in line " + std::to_string(line) + " to nowhere: " + label);
    program_->code[at].target = found->second;
  }
}

}  // namespace ptx
