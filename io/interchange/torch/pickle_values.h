// The contents of a pickle of tensors: the values that torch.save writes for a state dict, and
// nothing that is executed. The reason for not using a library:
// docs/adr/0023-a-pickle-reader-that-runs-nothing.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/checkpoint.h"

namespace io::pickle {

using Ref = std::uint32_t;  // the index of a value in Pickle::values

enum class Kind : std::uint8_t {
  kNone,
  kBool,
  kInteger,
  kText,
  kTuple,
  kList,
  kDict,     // also OrderedDict; keys may repeat: the reader of the dictionary handles that
  kName,     // one of the names below
  kStorage,  // a block of numbers outside the pickle
  kTensor,   // a view of a storage
  kOther,    // harmless and not needed: a float, a device, a number of more than 64 bits
};

struct Value {
  Kind kind = Kind::kNone;
  // kBool, kInteger: the value. kName: its number. kStorage: elements. kTensor: offset of the first
  // element.
  std::int64_t number = 0;
  std::string_view text{};   // kText: the text. kStorage: its key. Refers to the pickle's bytes.
  std::vector<Ref> items{};  // kTuple, kList: the values. kDict: key, value, key, value. kStorage:
                             // the name of its type. kTensor: storage, sizes, strides
};

struct Pickle {
  std::deque<Value> values;
  Ref root = 0;
  const Value& at(Ref ref) const { return values[ref]; }
};

// The conversion of a storage's elements. PyTorch's types without an array type here are widened,
// and keep their name in `stored_as`.
struct StorageType {
  std::string_view name;  // "FloatStorage"
  DType type;
  std::size_t bytes;  // per element in the file
  std::string_view stored_as{};
};
inline constexpr StorageType kStorageTypes[] = {
    {"FloatStorage", DType::kF32, 4},      {"DoubleStorage", DType::kF64, 8},
    {"HalfStorage", DType::kF16, 2},       {"BFloat16Storage", DType::kBF16, 2},
    {"LongStorage", DType::kI64, 8},       {"IntStorage", DType::kI32, 4},
    {"ByteStorage", DType::kU8, 1},        {"ShortStorage", DType::kI32, 2, "i16"},
    {"CharStorage", DType::kI32, 1, "i8"}, {"BoolStorage", DType::kU8, 1, "bool"},
};
// REQUIRES: `value` is a kStorage of a pickle that parse_pickle() returned.
const StorageType& type_of_storage(const Pickle& pickle, const Value& value);

// Reads one pickle of protocol 2 to 5, to its last byte. Nothing is imported or called: only the
// names of ordered dictionaries, tensors and storages and the harmless ones (pickle_names.h) are
// known, and every other one is rejected by name. `bytes` must outlive the result. The memory is
// proportional to the bytes, with at most a million values. Throws DataError that starts with
// `file`.
Pickle parse_pickle(std::span<const std::byte> bytes, const std::string& file);

// One tensor of a state dict, as described in the pickle; its storage has not been read.
struct TensorEntry {
  std::string name;
  const StorageType* type = nullptr;
  std::string key;                           // key of its storage
  std::int64_t elements = 0;                 // size of its storage
  std::int64_t offset = 0;                   // position of the first element in the storage
  std::vector<std::int64_t> shape, strides;  // of equal length; strides in elements
};

// Returns the state dict of a pickle, in its order: the root itself, or the value of "model",
// "state_dict" and similar keys. Throws DataError that starts with `file`: no state dict or
// several, names that are not text or repeat, values that are not tensors, negative numbers.
std::vector<TensorEntry> state_dict_of(const Pickle& pickle, const std::string& file);

}  // namespace io::pickle
