// A stack machine for the few opcodes that torch.save needs (CPython's pickletools.py describes
// them all). Values refer to each other by index, so that nesting causes no recursion.
#include <cstdio>
#include <cstring>
#include <unordered_map>

#include "io/base/files/io_error.h"
#include "io/interchange/torch/pickle_names.h"
#include "io/interchange/torch/pickle_values.h"

namespace io::pickle {
namespace {

constexpr std::size_t kMaxValues = 1'000'000;  // limit of the stack and of the memo as well
constexpr std::size_t kDeepest = 1000;         // maximum of open tuples, lists and dictionaries
constexpr std::size_t kLongestGlobal = 256;

// The known names; the storages' types follow them.
enum Known : std::int64_t {
  kOrderedDict,
  kRebuildTensor,
  kRebuildTensorV2,
  kRebuildParameter,
  kListLike,      // a call of it with any arguments gives a list
  kDictLike,      // a call of it with any arguments gives a dictionary
  kOpaque,        // a call of it with any arguments gives a value that is skipped
  kFirstStorage,  // and following, as in kStorageTypes
};
struct KnownName {
  std::string_view name;
  Known number;
};
constexpr KnownName kNames[] = {
    {"collections.OrderedDict", kOrderedDict},
    {"torch._utils._rebuild_tensor", kRebuildTensor},
    {"torch._utils._rebuild_tensor_v2", kRebuildTensorV2},
    {"torch._utils._rebuild_parameter", kRebuildParameter},
    // Used in options, in the states of schedulers and loops, and in measurements.
    {"collections.defaultdict", kDictLike},
    {"collections.deque", kListLike},
};

enum Opcode : unsigned char {
  kProto = 0x80,
  kFrame = 0x95,
  kStop = '.',
  kMark = '(',
  kNoneOp = 'N',
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kLong1 = 0x8A,
  kBinFloat = 'G',
  kBinUnicode = 'X',
  kShortBinUnicode = 0x8C,
  kEmptyTuple = ')',
  kTupleOp = 't',
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kEmptyList = ']',
  kAppend = 'a',
  kAppends = 'e',
  kEmptyDict = '}',
  kSetItem = 's',
  kSetItems = 'u',
  kGlobal = 'c',
  kStackGlobal = 0x93,
  kBinPersId = 'Q',
  kReduce = 'R',
  kBuild = 'b',
  kNewObj = 0x81,
  kEmptySet = 0x8F,
  kAddItems = 0x90,
  kFrozenSet = 0x91,
  kLong4 = 0x8B,
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kBinBytes8 = 0x8E,
  kByteArray8 = 0x96,
  kBinPut = 'q',
  kLongBinPut = 'r',
  kMemoize = 0x94,
  kBinGet = 'h',
  kLongBinGet = 'j',
};

class Machine {
 public:
  Machine(std::span<const std::byte> bytes, const std::string& file)
      : text_(reinterpret_cast<const char*>(bytes.data()), bytes.size()), file_(file) {
    // Values that need no copies: None, False, True, the empty tuple, small numbers.
    add({.kind = Kind::kNone});
    add({.kind = Kind::kBool, .number = 0});
    add({.kind = Kind::kBool, .number = 1});
    add({.kind = Kind::kTuple});
    for (std::int64_t i = 0; i < 256; ++i) add({.kind = Kind::kInteger, .number = i});
    shared_ = pickle_.values.size();
  }

  Pickle run() {
    if (next() != kProto) fail("it does not begin with its protocol");
    if (const int version = next(); version < 2 || version > 5)
      fail("protocol " + std::to_string(version) + "; known are 2 to 5");
    for (unsigned char opcode = next(); opcode != kStop; opcode = next()) step(opcode);
    if (stack_.size() != 1 || !marks_.empty())
      fail(std::to_string(stack_.size()) + " values are left at its end; expected one");
    if (at_ != text_.size()) fail(std::to_string(text_.size() - at_) + " bytes follow its end");
    pickle_.root = stack_.front();
    return std::move(pickle_);
  }

 private:
  [[noreturn]] void fail(const std::string& fault) const {
    throw DataError(file_ + ": bad pickle at byte " + std::to_string(at_) + ": " + fault);
  }
  [[noreturn]] void refuse(const std::string& name) const {
    const bool tensors = name.starts_with("torch.") &&
                         (name.ends_with("Storage") || name.find("_rebuild") != name.npos);
    throw DataError(file_ + ": refuses to load " + name + ": " +
                    (tensors ? "only dense tensors of f64, f32, f16, bf16, i64, i32, i16, i8, u8 "
                               "and bool are read"
                             : "only tensors are read; save model.state_dict() alone"));
  }

  // ---- Bytes.
  std::string_view take(std::uint64_t count) {
    if (count > text_.size() - at_) fail("it ends within a value");
    const std::string_view part = text_.substr(at_, count);
    at_ += count;
    return part;
  }
  unsigned char next() { return static_cast<unsigned char>(take(1).front()); }
  template <class T>
  T number() {  // little-endian, as the machine
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string line() {
    const std::size_t end = text_.substr(at_, kLongestGlobal + 1).find('\n');
    if (end == std::string_view::npos) fail("a name without an end, or of more than 256 bytes");
    const std::string_view text = take(end);
    take(1);
    return std::string(text);
  }

  // ---- Values.
  Ref add(Value value) {
    if (pickle_.values.size() == kMaxValues) fail("more than 1000000 values");
    pickle_.values.push_back(std::move(value));
    return static_cast<Ref>(pickle_.values.size() - 1);
  }
  void push(Ref ref) {
    if (stack_.size() == kMaxValues) fail("more than 1000000 values at once");
    stack_.push_back(ref);
  }
  void push_new(Value value) { push(add(std::move(value))); }
  void push_integer(std::int64_t value) {
    if (value >= 0 && value < 256) return push(static_cast<Ref>(4 + value));
    push_new({.kind = Kind::kInteger, .number = value});
  }
  // The lowest position that may be popped: values before the last mark are not accessible.
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Ref pop() {
    if (stack_.size() <= floor()) fail("a value is missing");
    const Ref ref = stack_.back();
    stack_.pop_back();
    return ref;
  }
  Value& top(Kind kind, const char* what) {
    if (stack_.size() <= floor()) fail("a value is missing");
    Value& value = pickle_.values[stack_.back()];
    if (value.kind != kind || stack_.back() < shared_) fail(what);
    return value;
  }
  std::vector<Ref> pop_to_mark() {
    if (marks_.empty()) fail("a mark is missing");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Ref> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return items;
  }
  std::vector<Ref> pop_some(std::size_t count) {
    std::vector<Ref> items(count);
    for (std::size_t i = count; i-- > 0;) items[i] = pop();
    return items;
  }
  void push_tuple(std::vector<Ref> items) {
    if (items.empty()) return push(kEmptyTupleRef);
    push_new({.kind = Kind::kTuple, .items = std::move(items)});
  }
  void extend(Kind kind, const std::vector<Ref>& items) {
    if (kind == Kind::kDict && items.size() % 2 != 0) fail("a key without a value");
    std::vector<Ref>& all = top(kind, kind == Kind::kDict ? "a value for what is no dictionary"
                                                          : "a value for what is no list")
                                .items;
    all.insert(all.end(), items.begin(), items.end());
  }
  const Value& at(Ref ref) const { return pickle_.values[ref]; }

  void put(std::uint64_t index) {
    if (stack_.size() <= floor()) fail("a value is missing");
    if (memo_.size() == kMaxValues) fail("more than 1000000 values in its memo");
    memo_[index] = stack_.back();
  }
  void get(std::uint64_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) fail("value " + std::to_string(index) + " of its memo is not there");
    push(found->second);
  }

  // ---- Names, and what PyTorch makes with them.
  void push_global(const std::string& name) {
    for (const KnownName& known : kNames)
      if (name == known.name) return push_new({.kind = Kind::kName, .number = known.number});
    constexpr std::string_view kTorch = "torch.";
    for (std::size_t i = 0; i < std::size(kStorageTypes); ++i)
      if (name.starts_with(kTorch) && name.substr(kTorch.size()) == kStorageTypes[i].name)
        return push_new(
            {.kind = Kind::kName, .number = kFirstStorage + static_cast<std::int64_t>(i)});
    if (is_harmless_name(name)) return push_new({.kind = Kind::kName, .number = kOpaque});
    refuse(name);
  }
  void stack_global() {
    const std::vector<Ref> parts = pop_some(2);
    for (const Ref part : parts)
      if (at(part).kind != Kind::kText || at(part).text.size() > kLongestGlobal)
        fail("a name that is no text, or of more than 256 bytes");
    push_global(std::string(at(parts[0]).text) + "." + std::string(at(parts[1]).text));
  }

  bool is_storage_name(Ref ref) const {
    return at(ref).kind == Kind::kName && at(ref).number >= kFirstStorage;
  }
  // Reads ('storage', type, key, location, elements); the location is ignored.
  void persistent() {
    const Ref id = pop();
    const std::vector<Ref>& items = at(id).items;
    if (at(id).kind != Kind::kTuple || items.size() != 5 || at(items[0]).kind != Kind::kText ||
        at(items[0]).text != "storage" || !is_storage_name(items[1]) ||
        at(items[2]).kind != Kind::kText || at(items[3]).kind != Kind::kText ||
        at(items[4]).kind != Kind::kInteger)
      fail("a persistent id that is not ('storage', type, key, location, number of elements)");
    if (at(items[4]).number < 0) fail("a storage with a negative number of elements");
    push_new({.kind = Kind::kStorage,
              .number = at(items[4]).number,
              .text = at(items[2]).text,
              .items = {items[1]}});
  }

  void reduce() {
    const Ref arguments = pop(), called = pop();
    if (at(called).kind != Kind::kName || at(called).number >= kFirstStorage)
      fail("a call of what cannot be called");
    if (at(arguments).kind != Kind::kTuple) fail("a call whose arguments are no tuple");
    const std::vector<Ref>& items = at(arguments).items;
    switch (at(called).number) {
      case kOrderedDict:
        if (!items.empty()) fail("an OrderedDict with arguments");
        return push_new({.kind = Kind::kDict});
      case kRebuildTensor:
        return tensor(items, 4, 4);
      case kRebuildTensorV2:
        return tensor(items, 6, 7);
      case kRebuildParameter:
        if (items.size() != 3 || at(items[0]).kind != Kind::kTensor)
          fail("a parameter that is not of a tensor");
        return push(items[0]);
      case kListLike:
        return push_new({.kind = Kind::kList});
      case kDictLike:
        return push_new({.kind = Kind::kDict});
      default:
        return push_new({.kind = Kind::kOther});
    }
  }
  // Creates an object of one of the harmless classes.
  void new_object() {
    const Ref arguments = pop(), type = pop();
    if (at(type).kind != Kind::kName || at(type).number != kOpaque ||
        at(arguments).kind != Kind::kTuple)
      fail("an object of what is no known class");
    push_new({.kind = Kind::kOther});
  }
  // Reads (storage, offset, sizes, strides[, requires_grad, hooks[, metadata]]).
  void tensor(const std::vector<Ref>& items, std::size_t least, std::size_t most) {
    if (items.size() < least || items.size() > most)
      fail("a tensor with " + std::to_string(items.size()) + " arguments");
    const Value &storage = at(items[0]), &offset = at(items[1]), &sizes = at(items[2]),
                &strides = at(items[3]);
    if (storage.kind != Kind::kStorage || offset.kind != Kind::kInteger ||
        sizes.kind != Kind::kTuple || strides.kind != Kind::kTuple)
      fail("a tensor that is not of storage, offset, sizes and strides");
    if (sizes.items.size() != strides.items.size())
      fail("a tensor with " + std::to_string(sizes.items.size()) + " sizes and " +
           std::to_string(strides.items.size()) + " strides");
    // The metadata states if its numbers must be conjugated or negated when they are read.
    if (items.size() == 7 && (at(items[6]).kind != Kind::kDict || !at(items[6]).items.empty()))
      fail("a tensor that is a conjugated or negated view; save it after .clone()");
    push_new(
        {.kind = Kind::kTensor, .number = offset.number, .items = {items[0], items[2], items[3]}});
  }
  // The attributes of a state dict (_metadata: versions of its modules) are not needed, nor is the
  // state of skipped values.
  void build() {
    const Ref state = pop();
    if (stack_.size() > floor() && at(stack_.back()).kind == Kind::kOther) return;
    if (at(state).kind != Kind::kDict) fail("attributes that are no dictionary");
    top(Kind::kDict, "attributes of what is no dictionary");
  }

  void long1() {
    const std::string_view bytes = take(next());
    if (bytes.size() > 8) return push_new({.kind = Kind::kOther});
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bits |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    if (const auto missing = static_cast<int>(64 - 8 * bytes.size()); missing > 0 && missing < 64)
      push_integer(static_cast<std::int64_t>(bits << missing) >> missing);  // extends the sign
    else
      push_integer(static_cast<std::int64_t>(bits));
  }

  void step(unsigned char opcode) {
    switch (opcode) {
      case kFrame:
        number<std::uint64_t>();  // the length of the frame
        return;
      case kMark:
        if (marks_.size() == kDeepest) fail("nested more than 1000 deep");
        marks_.push_back(stack_.size());
        return;
      case kBinUnicode:
        return push_new({.kind = Kind::kText, .text = take(number<std::uint32_t>())});
      case kShortBinUnicode:
        return push_new({.kind = Kind::kText, .text = take(next())});
      case kEmptyList:
        return push_new({.kind = Kind::kList});
      case kEmptyDict:
        return push_new({.kind = Kind::kDict});
      case kGlobal: {
        const std::string module = line();
        return push_global(module + "." + line());
      }
      case kStackGlobal:
        return stack_global();
      case kBinPersId:
        return persistent();
      case kReduce:
        return reduce();
      case kBuild:
        return build();
      case kNewObj:
        return new_object();
      default:
        return step_number(opcode);
    }
  }

  void step_number(unsigned char opcode) {
    switch (opcode) {
      case kNoneOp:
        return push(kNoneRef);
      case kNewFalse:
        return push(kFalseRef);
      case kNewTrue:
        return push(kTrueRef);
      case kBinInt:
        return push_integer(number<std::int32_t>());
      case kBinInt1:
        return push_integer(next());
      case kBinInt2:
        return push_integer(number<std::uint16_t>());
      case kLong1:
        return long1();
      case kBinFloat:
        take(8);
        return push_new({.kind = Kind::kOther});
      default:
        return step_unread(opcode);
    }
  }

  // Skips values that are not needed: sets, bytes, large numbers.
  void step_unread(unsigned char opcode) {
    switch (opcode) {
      case kEmptySet:
        return push_new({.kind = Kind::kOther});
      case kAddItems:
        static_cast<void>(pop_to_mark());
        top(Kind::kOther, "items of what is no set");
        return;
      case kFrozenSet:
        static_cast<void>(pop_to_mark());
        return push_new({.kind = Kind::kOther});
      case kLong4:
      case kBinBytes:
        take(number<std::uint32_t>());
        return push_new({.kind = Kind::kOther});
      case kShortBinBytes:
        take(next());
        return push_new({.kind = Kind::kOther});
      case kBinBytes8:
      case kByteArray8:
        take(number<std::uint64_t>());
        return push_new({.kind = Kind::kOther});
      default:
        return step_collection(opcode);
    }
  }

  void step_collection(unsigned char opcode) {
    switch (opcode) {
      case kEmptyTuple:
        return push(kEmptyTupleRef);
      case kTupleOp:
        return push_tuple(pop_to_mark());
      case kTuple1:
        return push_tuple(pop_some(1));
      case kTuple2:
        return push_tuple(pop_some(2));
      case kTuple3:
        return push_tuple(pop_some(3));
      case kAppend:
        return extend(Kind::kList, pop_some(1));
      case kAppends:
        return extend(Kind::kList, pop_to_mark());
      case kSetItem:
        return extend(Kind::kDict, pop_some(2));
      case kSetItems:
        return extend(Kind::kDict, pop_to_mark());
      case kBinPut:
        return put(next());
      case kLongBinPut:
        return put(number<std::uint32_t>());
      case kMemoize:
        return put(memo_.size());
      case kBinGet:
        return get(next());
      case kLongBinGet:
        return get(number<std::uint32_t>());
      default: {
        char code[8];
        std::snprintf(code, sizeof code, "0x%02x", opcode);
        fail("opcode " + std::string(code) +
             " is refused: only what a state dict of tensors needs is read");
      }
    }
  }

  static constexpr Ref kNoneRef = 0, kFalseRef = 1, kTrueRef = 2, kEmptyTupleRef = 3;
  std::string_view text_;
  const std::string& file_;
  std::size_t at_ = 0;  // in the bytes
  Pickle pickle_;
  std::size_t shared_ = 0;  // number of values that belong to the machine itself
  std::vector<Ref> stack_;
  std::vector<std::size_t> marks_;  // sizes of the stack
  std::unordered_map<std::uint64_t, Ref> memo_;
};

}  // namespace

const StorageType& type_of_storage(const Pickle& pickle, const Value& value) {
  return kStorageTypes[pickle.at(value.items.front()).number - kFirstStorage];
}

Pickle parse_pickle(std::span<const std::byte> bytes, const std::string& file) {
  return Machine(bytes, file).run();
}

}  // namespace io::pickle
