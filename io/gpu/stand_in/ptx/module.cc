// Reads the text of PTX: kernels, registers, labels, and a decoded statement for each instruction.
#include "io/gpu/stand_in/ptx/module.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

namespace ptx {
namespace {

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$' || c == '%' || c == '.';
}
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Words (names, opcodes, numbers) and single characters.
class Reader {
 public:
  Reader(std::string_view text, std::size_t at) : text_(text), at_(at) {}

  std::size_t position() {
    skip();
    return at_;
  }
  void go_to(std::size_t at) { at_ = at; }
  bool ended() { return position() >= text_.size(); }
  char peek() { return ended() ? '\0' : text_[at_]; }
  char take() {
    skip();
    return at_ < text_.size() ? text_[at_++] : '\0';
  }
  bool take_if(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take_if(c))
      throw Fault(std::string("'") + c + "' expected before \"" +
                  std::string(text_.substr(at_, 30)) + "\"");
  }
  std::string_view word() {
    skip();
    const std::size_t start = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    // Of an opcode: shared::cta.
    while (at_ + 2 < text_.size() && at_ > start && text_[at_] == ':' && text_[at_ + 1] == ':') {
      at_ += 2;
      while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    }
    if (at_ == start)
      throw Fault("a name expected before \"" + std::string(text_.substr(at_, 30)) + "\"");
    return text_.substr(start, at_ - start);
  }
  void to_end_of_line() {
    while (at_ < text_.size() && text_[at_] != '\n') ++at_;
  }

 private:
  void skip() {
    while (at_ < text_.size()) {
      if (is_space(text_[at_])) {
        ++at_;
      } else if (text_.compare(at_, 2, "//") == 0) {
        to_end_of_line();
      } else if (text_.compare(at_, 2, "/*") == 0) {
        const std::size_t end = text_.find("*/", at_ + 2);
        at_ = end == std::string_view::npos ? text_.size() : end + 2;
      } else {
        return;
      }
    }
  }
  std::string_view text_;
  std::size_t at_;
};

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (std::size_t start = 0;;) {
    const std::size_t end = text.find(at, start);
    parts.push_back(text.substr(start, end - start));
    if (end == std::string_view::npos) return parts;
    start = end + 1;
  }
}

std::uint64_t number_of(std::string_view digits, int base) {
  std::uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc() || end != digits.data() + digits.size())
    throw Fault("not a number: " + std::string(digits));
  return value;
}

// Of a type's name, without the dot; 1 for predicates, 0: not a type.
unsigned bytes_of_type(std::string_view type) {
  if (type == "pred") return 1;
  if (type.size() < 2 || std::string_view("bsuf").find(type[0]) == std::string_view::npos) return 0;
  if (type.substr(1) == "8") return 1;
  if (type.substr(1) == "16") return 2;
  if (type.substr(1) == "32") return 4;
  if (type.substr(1) == "64") return 8;
  return 0;
}

}  // namespace

std::unique_ptr<Module> Module::read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Fault("no PTX at " + path);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return std::make_unique<Module>(path, std::move(text));
}

Module::Module(std::string path, std::string text)
    : path_(std::move(path)), text_(std::move(text)) {
  // From one ".entry" or ".func" to the next; within bodies nothing but braces is looked at.
  const auto find_from = [&](std::size_t at) {
    return std::min(text_.find(".entry", at), text_.find(".func", at));
  };
  for (std::size_t at = find_from(0); at != std::string::npos; at = find_from(at)) {
    const bool entry = text_.compare(at, 6, ".entry") == 0;
    Reader reader(text_, at);
    reader.word();
    if (!entry && reader.peek() == '(') {  // what it returns
      while (reader.take() != ')') {
      }
    }
    const std::string name(reader.word());
    const std::size_t header = reader.position();
    const std::size_t open = text_.find('{', header), semicolon = text_.find(';', header);
    if (open == std::string::npos || semicolon < open) {  // declared only
      at = header;
      continue;
    }
    std::size_t depth = 1, end = open + 1;
    for (; end < text_.size() && depth > 0; ++end) {
      if (text_[end] == '{') ++depth;
      if (text_[end] == '}') --depth;
    }
    if (depth > 0) throw Fault(path_ + ": " + name + " does not end");
    (entry ? entries_ : functions_)[name] = {at, open + 1, end - 1};
    at = end;
  }
}

std::vector<std::string> Module::kernels() const {
  std::vector<std::string> names;
  for (const auto& [name, body] : entries_) names.push_back(name);
  return names;
}

std::uint32_t Module::line_of(std::size_t position) const {
  return 1 + static_cast<std::uint32_t>(std::count(
                 text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(position), '\n'));
}

// Reads a body statement by statement. Registers are numbers until all are known; then each gets
// its place.
class Decoder {
 public:
  Decoder(const Module& module, const Module::Body& body, const std::string& name)
      : module_(module), reader_(module.text_, body.header), program_(new Program) {
    program_->name = name;
    program_->file = module.path_;
    line_at_ = body.header;
    line_ = module.line_of(body.header);
    try {
      header();
      reader_.go_to(body.begin);
      enter();
      statements(body.end, nullptr);
      leave();
      if (program_->code.empty() || program_->code.back().kind != Kind::kExit) {
        Instruction end;
        end.run = find_form("ret")->run;
        end.kind = Kind::kExit;
        add(end);
      }
      resolve_labels();
      place_registers();
    } catch (const Fault& fault) {
      throw Fault(module.path_ + ":" + std::to_string(line_now()) + ": " + fault.what() + " (in " +
                  name + ")");
    }
  }
  std::unique_ptr<Program> take() { return std::move(program_); }

 private:
  struct Register {
    unsigned bytes;
  };
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
  struct Family {
    std::uint32_t first, count;
  };
  struct Scope {
    std::unordered_map<std::string_view, std::uint32_t> registers;
    std::unordered_map<std::string_view, Family> families;
    std::unordered_map<std::string_view, std::uint32_t> parameters;  // of calls: as registers
  };

  std::uint32_t line_now() {
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
  void header() {
    reader_.word();
    reader_.word();
    reader_.expect('(');
    while (!reader_.take_if(')')) {
      std::uint32_t bytes = 0, alignment = 0;
      if (reader_.word() != ".param") throw Fault(".param expected");
      std::string_view word = reader_.word();
      if (word == ".align") {
        alignment = static_cast<std::uint32_t>(number_of(reader_.word(), 10));
        word = reader_.word();
      }
      bytes = bytes_of_type(word.substr(1));
      if (bytes == 0) throw Fault("a parameter of type " + std::string(word));
      if (alignment == 0) alignment = bytes;
      const std::string_view name = reader_.word();
      if (reader_.take_if('[')) {
        bytes *= static_cast<std::uint32_t>(number_of(reader_.word(), 10));
        reader_.expect(']');
      }
      std::uint32_t& end = program_->parameter_bytes;
      end = (end + alignment - 1) / alignment * alignment;
      parameter_offset_[name] = end;
      program_->parameters.push_back({end, bytes, alignment});
      end += bytes;
      reader_.take_if(',');
    }
    while (reader_.peek() != '{') {
      const std::string_view word = reader_.word();
      if (word == ".maxntid" || word == ".reqntid") {
        program_->most_threads = static_cast<unsigned>(number_of(reader_.word(), 10));
        while (reader_.take_if(','))
          program_->most_threads *= static_cast<unsigned>(number_of(reader_.word(), 10));
      } else if (word == ".minnctapersm") {
        program_->least_blocks = static_cast<unsigned>(number_of(reader_.word(), 10));
      } else if (word == ".maxnreg") {
        program_->most_registers = static_cast<unsigned>(number_of(reader_.word(), 10));
      } else if (word == ".reqnctapercluster") {
        program_->cluster = {1, 1, 1};
        for (unsigned& blocks : program_->cluster) {
          blocks = static_cast<unsigned>(number_of(reader_.word(), 10));
          if (!reader_.take_if(',')) break;
        }
        program_->needs_history = true;
      } else if (word == ".explicitcluster") {
      } else {
        throw Fault("unknown directive " + std::string(word));
      }
    }
  }

  void enter() { scopes_.emplace_back(); }
  void leave() { scopes_.pop_back(); }

  std::uint32_t new_register(unsigned bytes) {
    registers_.push_back({bytes});
    return static_cast<std::uint32_t>(registers_.size() - 1);
  }
  std::uint32_t constant(unsigned bytes, std::uint64_t bits) {
    if (bytes < 8) bits &= (std::uint64_t{1} << (8 * bytes)) - 1;
    const auto [found, fresh] = constants_.try_emplace({bytes, bits}, 0);
    if (fresh) found->second = new_register(bytes);
    return found->second;
  }
  std::uint32_t special(std::string_view name) {
    static const std::map<std::string_view, std::pair<Special, unsigned>> names = {
        {"%tid.x", {Special::kTid, 0}},
        {"%tid.y", {Special::kTid, 1}},
        {"%tid.z", {Special::kTid, 2}},
        {"%ntid.x", {Special::kNtid, 0}},
        {"%ntid.y", {Special::kNtid, 1}},
        {"%ntid.z", {Special::kNtid, 2}},
        {"%ctaid.x", {Special::kCtaid, 0}},
        {"%ctaid.y", {Special::kCtaid, 1}},
        {"%ctaid.z", {Special::kCtaid, 2}},
        {"%nctaid.x", {Special::kNctaid, 0}},
        {"%nctaid.y", {Special::kNctaid, 1}},
        {"%nctaid.z", {Special::kNctaid, 2}},
        {"%laneid", {Special::kLane, 0}},
        {"%warpid", {Special::kWarp, 0}},
        {"%clusterid.x", {Special::kClusterid, 0}},
        {"%clusterid.y", {Special::kClusterid, 1}},
        {"%clusterid.z", {Special::kClusterid, 2}},
        {"%nclusterid.x", {Special::kNclusterid, 0}},
        {"%nclusterid.y", {Special::kNclusterid, 1}},
        {"%nclusterid.z", {Special::kNclusterid, 2}},
        {"%cluster_ctaid.x", {Special::kClusterCtaid, 0}},
        {"%cluster_ctaid.y", {Special::kClusterCtaid, 1}},
        {"%cluster_ctaid.z", {Special::kClusterCtaid, 2}},
        {"%cluster_nctaid.x", {Special::kClusterNctaid, 0}},
        {"%cluster_nctaid.y", {Special::kClusterNctaid, 1}},
        {"%cluster_nctaid.z", {Special::kClusterNctaid, 2}},
        {"%cluster_ctarank", {Special::kClusterCtarank, 0}},
        {"%cluster_nctarank", {Special::kClusterNctarank, 0}},
    };
    const auto known = names.find(name);
    if (known == names.end()) throw Fault("unknown register " + std::string(name));
    const auto [found, fresh] = specials_.try_emplace(known->second, 0);
    if (fresh) found->second = new_register(4);
    return found->second;
  }

  std::optional<std::uint32_t> find_register(std::string_view name) const {
    std::size_t digits = name.size();
    while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (const auto found = scope->registers.find(name); found != scope->registers.end())
        return found->second;
      if (digits == name.size()) continue;
      const auto family = scope->families.find(name.substr(0, digits));
      if (family == scope->families.end()) continue;
      const std::uint64_t which = number_of(name.substr(digits), 10);
      if (which < family->second.count)
        return family->second.first + static_cast<std::uint32_t>(which);
    }
    return std::nullopt;
  }
  std::optional<std::uint32_t> find_call_parameter(std::string_view name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
      if (const auto found = scope->parameters.find(name); found != scope->parameters.end())
        return found->second;
    return std::nullopt;
  }

  void add(Instruction instruction) {
    instruction.line = statement_line_;
    program_->code.push_back(instruction);
  }

  // Until `end`. Within a function `after` is the label that `ret` goes to.
  void statements(std::size_t end, const std::string* after) {
    const std::size_t outer = scopes_.size();
    while (reader_.position() < end) {
      statement_line_ = line_now();
      const char next = reader_.peek();
      if (next == '{') {
        reader_.take();
        enter();
      } else if (next == '}') {
        reader_.take();
        if (scopes_.size() == outer) throw Fault("a '}' too many");
        leave();
      } else if (next == '.') {
        directive();
      } else {
        statement(after);
      }
    }
  }

  void directive() {
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
      const std::string_view type = reader_.word();
      const unsigned bytes = bytes_of_type(type.substr(1));
      if (bytes == 0) throw Fault("registers of type " + std::string(type));
      do {
        const std::string_view name = reader_.word();
        if (reader_.take_if('<')) {
          const auto count = static_cast<std::uint32_t>(number_of(reader_.word(), 10));
          reader_.expect('>');
          scopes_.back().families[name] = {static_cast<std::uint32_t>(registers_.size()), count};
          registers_.resize(registers_.size() + count, {bytes});
        } else {
          scopes_.back().registers[name] = new_register(bytes);
        }
      } while (reader_.take_if(','));
      reader_.expect(';');
    } else if (word == ".param") {
      const std::string_view type = reader_.word();
      const unsigned bytes = bytes_of_type(type.substr(1));
      if (bytes == 0) throw Fault("a call's parameter of type " + std::string(type));
      scopes_.back().parameters[reader_.word()] = new_register(bytes);
      reader_.expect(';');
    } else {
      throw Fault("unknown directive " + std::string(word));
    }
  }

  // "nounroll" is for ptxas. "used_bytes_mask M" says which bytes of the next load the program
  // needs, of a load that nvcc has made wider: the others may be beyond what there is.
  void pragma() {
    reader_.expect('"');
    const std::string_view word = reader_.word();
    if (word == "used_bytes_mask") {
      const std::uint64_t mask = number_of(reader_.word(), 10);
      used_bytes_ = static_cast<std::uint8_t>(std::bit_width(mask));
    } else if (word != "nounroll") {
      throw Fault("unknown pragma " + std::string(word));
    }
    reader_.expect('"');
    reader_.expect(';');
  }

  Operand list(char end) {
    reader_.take();
    Operand o{};
    o.what = Operand::kList;
    if (end == ')' && reader_.take_if(end)) return o;  // only a list of parameters may be empty
    do o.parts.push_back(operand());
    while (reader_.take_if(','));
    reader_.expect(end);
    return o;
  }

  Operand operand() {
    Operand o{};
    switch (reader_.peek()) {
      case '{':
        return list('}');
      case '(':
        return list(')');
      case '[':
        reader_.take();
        o = operand();
        o.offset = 0;
        if (reader_.take_if('+')) o.offset = signed_number();
        if (reader_.take_if(',')) {  // of a tensor map: the place in the tensor
          if (reader_.peek() != '{') throw Fault("'{' expected");
          o.parts = list('}').parts;
        }
        reader_.expect(']');
        if (o.what == Operand::kNumber) throw Fault("an address that is a number");
        o.has_base = o.what == Operand::kRegister;
        o.what = Operand::kAddress;
        return o;
      case '!':
        reader_.take();
        o = operand();
        o.negated = true;
        return o;
      case '-':
        o.what = Operand::kNumber;
        o.bits = static_cast<std::uint64_t>(signed_number());
        return o;
      default:
        break;
    }
    const std::string_view word = reader_.word();
    if (word == "_") {
      o.what = Operand::kSink;
    } else if (word[0] >= '0' && word[0] <= '9') {
      if (word.size() > 2 && (word[1] == 'f' || word[1] == 'F')) {
        o.what = Operand::kFloat32;
        o.bits = number_of(word.substr(2), 16);
      } else if (word.size() > 2 && (word[1] == 'd' || word[1] == 'D')) {
        o.what = Operand::kFloat64;
        o.bits = number_of(word.substr(2), 16);
      } else {
        o.what = Operand::kNumber;
        o.bits =
            word.size() > 2 && word[1] == 'x' ? number_of(word.substr(2), 16) : number_of(word, 10);
      }
    } else if (const auto reg = find_register(word)) {
      o.what = Operand::kRegister;
      o.reg = *reg;
    } else if (word[0] == '%') {
      o.what = Operand::kRegister;
      o.reg = special(word);
    } else {
      o.what = Operand::kName;
      o.name = word;
    }
    if (reader_.take_if('|')) {  // a second result
      Operand both{};
      both.what = Operand::kList;
      both.parts = {o, operand()};
      return both;
    }
    return o;
  }
  std::int64_t signed_number() {
    const bool negative = reader_.take_if('-');
    const std::uint64_t size = number_of(reader_.word(), 10);
    return static_cast<std::int64_t>(negative ? 0 - size : size);
  }

  void statement(const std::string* after) {
    Instruction i;
    if (reader_.take_if('@')) {
      i.guarded = true;
      i.negated = reader_.take_if('!');
      const std::string_view name = reader_.word();
      const auto guard = find_register(name);
      if (!guard || registers_[*guard].bytes != 1)
        throw Fault("no such predicate: " + std::string(name));
      i.guard = *guard;
    }
    const std::string_view opcode = reader_.word();
    if (!i.guarded && reader_.take_if(':')) {
      if (!labels_
               .emplace(std::string(opcode) + instance_,
                        static_cast<std::uint32_t>(program_->code.size()))
               .second)
        throw Fault("the label " + std::string(opcode) + " stands here twice");
      return;
    }
    std::vector<Operand> operands;
    if (reader_.peek() != ';') do
        operands.push_back(operand());
      while (reader_.take_if(','));
    reader_.expect(';');
    const std::vector<std::string_view> words = split(opcode, '.');
    const std::string_view name = words[0];
    if (name == "bra") {
      branch(i, operands.at(0).name, instance_);
    } else if (name == "call") {
      call(operands);
    } else if (name == "ret" && after != nullptr) {
      branch(i, *after, "");
    } else if (name == "mov") {
      move(i, words, operands);
    } else if (name == "ld" || name == "st") {
      access(i, name == "ld", words, operands);
    } else if (name == "cvt" && integer_conversion(i, words, operands)) {
    } else if (name == "cp" && words.at(1) == "async" && words.size() >= 5 && words[2] != "bulk") {
      copy_async(i, opcode, operands);
    } else if (name == "wgmma" && words.at(1) == "mma_async") {
      warpgroup_product(i, opcode, operands);
    } else {
      plain(i, opcode, operands);
    }
  }

  void branch(Instruction i, std::string_view label, const std::string& instance) {
    i.kind = Kind::kBranch;
    jumps_.push_back({program_->code.size(), std::string(label) + instance, statement_line_});
    add(i);
  }

  // The function's body in place of the call: its parameters are registers.
  void call(const std::vector<Operand>& operands) {
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
    enter();
    reader_.go_to(body->header);
    reader_.word();
    const auto bind = [&](const std::vector<Operand>& given) {
      reader_.expect('(');
      std::size_t n = 0;
      while (!reader_.take_if(')')) {
        if (reader_.word() != ".param") throw Fault(".param expected");
        reader_.word();
        const std::string_view parameter = reader_.word();
        if (n >= given.size()) throw Fault("a call with too few arguments");
        const auto reg = find_call_parameter(given[n++].name);
        if (!reg) throw Fault("a call's argument that is no parameter");
        scopes_.back().parameters[parameter] = *reg;
        reader_.take_if(',');
      }
      if (n != given.size()) throw Fault("a call with too many arguments");
    };
    if (reader_.peek() == '(') bind(results);
    reader_.word();
    bind(arguments);
    reader_.go_to(body->begin);
    statements(body->end, &after);
    leave();
    --depth_;
    instance_ = outer;
    labels_[after] = static_cast<std::uint32_t>(program_->code.size());
    reader_.go_to(back);
    statement_line_ = line_now();
  }

  // As an operand of so many bytes.
  std::uint32_t value(const Operand& o, unsigned bytes) {
    if (o.negated) throw Fault("a negated operand");
    switch (o.what) {
      case Operand::kRegister:
        if (registers_[o.reg].bytes != bytes)
          throw Fault("a register of " + std::to_string(8 * registers_[o.reg].bytes) +
                      " bits where " + std::to_string(8 * bytes) + " are expected");
        return o.reg;
      case Operand::kNumber:
        return constant(bytes, bytes == 1 ? (o.bits != 0 ? 1 : 0) : o.bits);
      case Operand::kFloat32:
        if (bytes != 4) throw Fault("a number of f32");
        return constant(4, o.bits);
      case Operand::kFloat64:
        if (bytes != 8) throw Fault("a number of f64");
        return constant(8, o.bits);
      case Operand::kName:
        return constant(bytes, address_of(o.name));
      default:
        throw Fault("an operand of another kind is expected");
    }
  }
  std::uint32_t result(const Operand& o, unsigned bytes) {
    if (o.what == Operand::kSink) return new_register(bytes);
    if (o.what != Operand::kRegister) throw Fault("a register is expected");
    return value(o, bytes);
  }
  // Of the block's shared memory, which is all dynamic and begins at one place; or of a parameter.
  std::uint64_t address_of(std::string_view name) const {
    if (const auto found = parameter_offset_.find(name); found != parameter_offset_.end())
      return found->second;
    if (name.find("engine_block_shared") != std::string_view::npos) return kSharedStart;
    throw Fault("unknown name " + std::string(name));
  }

  static unsigned bytes_of_letter(char letter) {
    return letter == 'p' ? 1 : letter == 'h' ? 2 : letter == 'd' ? 8 : 4;
  }

  void plain(Instruction i, std::string_view opcode, const std::vector<Operand>& given) {
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
      program_->needs_history |= other.needs_history;
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
    set_slots(i, slots, 0);
    add(i);
  }

  void set_slots(Instruction& i, const std::vector<std::uint32_t>& slots, unsigned more_results) {
    const std::size_t inside = std::min(slots.size(), i.slot.size());
    i.slots = static_cast<std::uint8_t>(inside);
    std::copy_n(slots.begin(), inside, i.slot.begin());
    i.target = static_cast<std::uint32_t>(program_->more.size());
    i.more = static_cast<std::uint8_t>(slots.size() - inside);
    i.more_results = static_cast<std::uint8_t>(more_results);
    program_->more.insert(program_->more.end(), slots.begin() + static_cast<std::ptrdiff_t>(inside),
                          slots.end());
  }

  // The register with the address; the offset into i.immediate.
  std::uint32_t address(Instruction& i, const Operand& o, bool shared) {
    if (o.what != Operand::kAddress) throw Fault("an address is expected");
    i.immediate = static_cast<std::int32_t>(o.offset);
    if (i.immediate != o.offset) throw Fault("an offset beyond 32 bits");
    if (!o.has_base) {
      i.width = shared ? 4 : 8;
      return constant(i.width, address_of(o.name));
    }
    i.width = static_cast<std::uint8_t>(registers_[o.reg].bytes);
    if (i.width != 8 && !(shared && i.width == 4)) throw Fault("an address in another register");
    return o.reg;
  }

  std::uint32_t plain_address(const Operand& o, bool shared) {
    Instruction unused;
    const std::uint32_t reg = address(unused, o, shared);
    if (unused.immediate != 0) throw Fault("an address with an offset: not known here");
    if (unused.width != (shared ? 4 : 8)) throw Fault("an address in another register");
    return reg;
  }

  void move(Instruction i, const std::vector<std::string_view>& words,
            const std::vector<Operand>& given) {
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
    set_slots(i, slots, 0);
    add(i);
  }

  void access(Instruction i, bool load, const std::vector<std::string_view>& words,
              const std::vector<Operand>& given) {
    std::size_t n = 1;
    const std::string_view space = n < words.size() ? words[n++] : "";
    unsigned parts = 1;
    if (n < words.size() && (words[n] == "v2" || words[n] == "v4"))
      parts = words[n++] == "v2" ? 2 : 4;
    const unsigned bytes = n + 1 == words.size() ? bytes_of_type(words[n]) : 0;
    if (bytes == 0 || given.size() != 2) throw Fault(unknown(words));
    const bool is_signed = words[n][0] == 's';
    const Operand &data = given[load ? 0 : 1], &where = given[load ? 1 : 0];
    if (where.what != Operand::kAddress) throw Fault("an address is expected");
    if (space == "param" && !where.has_base) {
      if (const auto reg = find_call_parameter(where.name)) {  // of a call: a register
        if (parts != 1 || where.offset != 0 || registers_[*reg].bytes != bytes)
          throw Fault(unknown(words));
        i.run = copy_of(bytes);
        i.results = 1;
        set_slots(
            i,
            load ? std::vector{result(data, bytes), *reg} : std::vector{*reg, value(data, bytes)},
            0);
        return add(i);
      }
    }
    i.run = load ? find_load(space, bytes, parts, is_signed) : find_store(space, bytes, parts);
    if (i.run == nullptr) throw Fault(unknown(words));
    const std::vector<Operand> list = data.what == Operand::kList ? data.parts : std::vector{data};
    if (list.size() != parts) throw Fault("another number of registers than of elements");
    std::vector<std::uint32_t> slots;
    for (const Operand& o : list) {
      unsigned width = bytes;  // registers may be wider than the data
      if (o.what == Operand::kRegister) width = registers_[o.reg].bytes;
      if (width < bytes || width == 1) throw Fault("a register that is too narrow");
      if (i.data_width != 0 && i.data_width != width) throw Fault("registers of several widths");
      i.data_width = static_cast<std::uint8_t>(width);
      slots.push_back(load ? result(o, width) : value(o, width));
    }
    if (load) i.used_bytes = std::exchange(used_bytes_, std::uint8_t{0});
    const std::uint32_t place = address(i, where, space.substr(0, 6) == "shared");
    slots.insert(load ? slots.end() : slots.begin(), place);
    i.results = static_cast<std::uint8_t>(load ? parts : 0);
    set_slots(i, slots, 0);
    add(i);
  }

  static std::string unknown(const std::vector<std::string_view>& words) {
    std::string text = "unknown instruction ";
    for (std::size_t n = 0; n < words.size(); ++n) {
      if (n > 0) text += '.';
      text += words[n];
    }
    return text;
  }

  // Between integers: "cvt.s64.s32".
  bool integer_conversion(Instruction i, const std::vector<std::string_view>& words,
                          const std::vector<Operand>& given) {
    if (words.size() != 3 || words[1][0] == 'f' || words[2][0] == 'f' || given.size() != 2)
      return false;
    const unsigned to = bytes_of_type(words[1]), from = bytes_of_type(words[2]);
    if (to == 0 || from == 0 || given[1].what != Operand::kRegister) return false;
    const unsigned width = registers_[given[1].reg].bytes;
    const unsigned wide = given[0].what == Operand::kRegister ? registers_[given[0].reg].bytes : to;
    if (width < from || wide < to) throw Fault("a register that is too narrow");
    // To a narrower type than the register, as of s8: cut, then extended again.
    const bool cut = to < wide;
    if (cut && to > from) throw Fault(unknown(words));
    i.run = find_integer_conversion(wide, cut ? to : from, words[cut ? 1 : 2][0] == 's');
    if (i.run == nullptr) return false;
    i.width = static_cast<std::uint8_t>(width);
    i.results = 1;
    set_slots(i, {result(given[0], wide), given[1].reg}, 0);
    add(i);
    return true;
  }

  void copy_async(Instruction i, std::string_view opcode, const std::vector<Operand>& given) {
    if ((opcode != "cp.async.cg.shared.global" && opcode != "cp.async.ca.shared.global") ||
        given.size() < 3 || given.size() > 4 || given[2].what != Operand::kNumber)
      throw Fault("unknown instruction " + std::string(opcode));
    char form = 'n';
    std::vector<std::uint32_t> slots = {address(i, given[0], true), 0};
    if (i.width != 4 || i.immediate != 0) throw Fault("cp.async with an offset");
    slots[1] = address(i, given[1], false);
    if (i.immediate != 0) throw Fault("cp.async with an offset");
    if (given.size() == 4) {
      const bool ignores =
          given[3].what == Operand::kRegister && registers_[given[3].reg].bytes == 1;
      form = ignores ? 'i' : 's';
      slots.push_back(value(given[3], ignores ? 1 : 4));
    }
    i.run = copy_async_of(static_cast<unsigned>(given[2].bits), form);
    if (i.run == nullptr || (opcode == "cp.async.cg.shared.global" && given[2].bits != 16))
      throw Fault("cp.async of " + std::to_string(given[2].bits) + " bytes");
    set_slots(i, slots, 0);
    add(i);
  }

  // D, A's descriptor, B's, whether to add, signs of A and B, which of them are transposed.
  void warpgroup_product(Instruction i, std::string_view opcode,
                         const std::vector<Operand>& given) {
    if (given.size() != 8 || given[0].what != Operand::kList || given[0].parts.size() != 64)
      throw Fault("unknown form of " + std::string(opcode));
    for (std::size_t n = 4; n < 8; ++n)
      if (given[n].what != Operand::kNumber || given[n].bits > 1 || (n < 6 && given[n].bits != 1))
        throw Fault("unknown form of " + std::string(opcode));
    i.run = warpgroup_product_of(opcode, given[6].bits == 1, given[7].bits == 1);
    if (i.run == nullptr) throw Fault("unknown instruction " + std::string(opcode));
    i.kind = Kind::kWholeWarp;
    i.slots = 3;
    i.slot = {value(given[1], 8), value(given[2], 8), value(given[3], 1)};
    i.target = static_cast<std::uint32_t>(program_->more.size());
    i.more = i.more_results = 64;
    for (const Operand& o : given[0].parts) program_->more.push_back(result(o, 4));
    program_->uses_wgmma = true;
    add(i);
  }

  void resolve_labels() {
    for (const auto& [at, label, line] : jumps_) {
      const auto found = labels_.find(label);
      if (found == labels_.end())
        throw Fault("a branch in line " + std::to_string(line) + " to nowhere: " + label);
      program_->code[at].target = found->second;
    }
  }

  void place_registers();

  const Module& module_;
  Reader reader_;
  std::unique_ptr<Program> program_;
  std::vector<Scope> scopes_;
  std::vector<Register> registers_;
  std::map<std::pair<unsigned, std::uint64_t>, std::uint32_t> constants_;
  std::map<std::pair<Special, unsigned>, std::uint32_t> specials_;
  std::unordered_map<std::string_view, std::uint32_t> parameter_offset_;
  struct Jump {
    std::size_t at;
    std::string label;
    std::uint32_t line;
  };
  std::vector<Jump> jumps_;
  std::unordered_map<std::string, std::uint32_t> labels_;
  std::string instance_;  // of an inlined function: makes its labels its own
  unsigned calls_ = 0, depth_ = 0;
  std::uint8_t used_bytes_ = 0;
  std::uint32_t line_ = 1, statement_line_ = 1;
  std::size_t line_at_ = 0;
};

// Kernels have thousands of registers, each of which is written in one or two places and needed
// for a few instructions. Those that are never needed at the same time share a place, so that a
// block's registers stay in the processor's caches. A register is needed from the first to the last
// instruction that names it; where it is named inside and outside of a loop, or read in it before
// it is written, in all of the loop.
void Decoder::place_registers() {
  Program& program = *program_;
  constexpr std::uint32_t kNever = ~0u;
  struct Span {
    std::uint32_t first = kNever, last = 0, bytes = 0;
    bool read_first = false;
  };
  std::vector<Span> spans(registers_.size());
  const auto each_operand = [&](Instruction& i, auto&& use) {  // reads before writes
    if (i.guarded) use(i.guard, false);
    for (unsigned n = i.results; n < i.slots; ++n) use(i.slot[n], false);
    for (unsigned n = 0; n < i.more; ++n) use(program.more[i.target + n], false);
    // A guarded result keeps the old value in some lanes.
    for (unsigned n = 0; n < i.results; ++n) use(i.slot[n], !i.guarded);
  };
  for (std::uint32_t at = 0; at < program.code.size(); ++at)
    each_operand(program.code[at], [&](std::uint32_t reg, bool written) {
      Span& span = spans[reg];
      if (span.first == kNever) {
        span.first = at;
        span.read_first = !written;
      }
      span.last = at;
    });
  struct Loop {
    std::uint32_t first, last;
  };
  std::vector<Loop> loops;
  for (std::uint32_t at = 0; at < program.code.size(); ++at)
    if (program.code[at].kind == Kind::kBranch && program.code[at].target <= at)
      loops.push_back({program.code[at].target, at});
  std::vector<bool> fixed(registers_.size());
  for (const auto& [key, reg] : constants_) fixed[reg] = true;
  for (const auto& [key, reg] : specials_) fixed[reg] = true;
  for (bool changed = true; changed;) {
    changed = false;
    for (const Loop& loop : loops)
      for (Span& span : spans) {
        if (span.first == kNever || span.last < loop.first || span.first > loop.last) continue;
        const bool inside = span.first >= loop.first && span.last <= loop.last;
        if (inside && !span.read_first) continue;
        if (span.first <= loop.first && span.last >= loop.last) continue;
        span.first = std::min(span.first, loop.first);
        span.last = std::max(span.last, loop.last);
        changed = true;
      }
  }
  // Places by size, reused as they become free.
  std::vector<std::uint32_t> place(registers_.size(), 0);
  std::uint32_t end = 0;
  const auto fresh = [&](unsigned bytes) {
    const std::uint32_t at = end;
    end += (bytes * kLanes + 63) / 64 * 64;
    return at;
  };
  std::map<unsigned, std::vector<std::uint32_t>> free;
  std::vector<std::uint32_t> order;
  for (std::uint32_t reg = 0; reg < registers_.size(); ++reg) {
    if (fixed[reg])
      place[reg] = fresh(registers_[reg].bytes);
    else if (spans[reg].first != kNever)
      order.push_back(reg);
  }
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return spans[a].first != spans[b].first ? spans[a].first < spans[b].first : a < b;
  });
  std::multimap<std::uint32_t, std::uint32_t> ends;  // last instruction: register
  for (const std::uint32_t reg : order) {
    while (!ends.empty() && ends.begin()->first < spans[reg].first) {
      const std::uint32_t over = ends.begin()->second;
      free[registers_[over].bytes].push_back(place[over]);
      ends.erase(ends.begin());
    }
    std::vector<std::uint32_t>& reusable = free[registers_[reg].bytes];
    if (reusable.empty()) {
      place[reg] = fresh(registers_[reg].bytes);
    } else {
      place[reg] = reusable.back();
      reusable.pop_back();
    }
    ends.emplace(spans[reg].last, reg);
  }
  program.register_bytes = end;
  for (Instruction& i : program.code) {
    i.guard = i.guarded ? place[i.guard] : 0;
    for (unsigned n = 0; n < i.slots; ++n) i.slot[n] = place[i.slot[n]];
  }
  for (std::uint32_t& slot : program.more) slot = place[slot];
  for (const auto& [key, reg] : constants_)
    program.constants.push_back({place[reg], key.first, key.second});
  for (const auto& [key, reg] : specials_)
    program.specials.push_back({place[reg], key.first, key.second});
}

const Module::Body* Module::function(std::string_view name) const {
  const auto found = functions_.find(name);
  return found == functions_.end() ? nullptr : &found->second;
}

std::unique_ptr<Program> Module::decode(const std::string& kernel) const {
  const auto found = entries_.find(kernel);
  if (found == entries_.end()) throw Fault(path_ + ": has no kernel " + kernel);
  return Decoder(*this, found->second, kernel).take();
}

std::string Program::where(std::uint32_t instruction) const {
  if (instruction >= code.size()) return file;
  std::string text = file + ":" + std::to_string(code[instruction].line);
  const auto after =
      std::upper_bound(places.begin(), places.end(), instruction,
                       [](std::uint32_t at, const Place& p) { return at < p.instruction; });
  if (after == places.begin()) return text;
  const Place& place = *(after - 1);
  // ".file N "path"" is at the end of the PTX.
  std::ifstream ptx(file);
  const std::string wanted = ".file\t" + std::to_string(place.file) + " ";
  for (std::string line; std::getline(ptx, line);)
    if (const std::size_t at = line.find(wanted); at != std::string::npos) {
      const std::size_t open = line.find('"', at), close = line.find('"', open + 1);
      if (close != std::string::npos)
        text +=
            " (" + line.substr(open + 1, close - open - 1) + ":" + std::to_string(place.line) + ")";
      break;
    }
  return text;
}

}  // namespace ptx
