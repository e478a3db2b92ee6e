// Finds the model's state dict among a pickle's dictionaries, and its tensors.
#include <algorithm>
#include <array>
#include <unordered_set>

#include "io/base/files/io_error.h"
#include "io/base/text/utf8.h"
#include "io/interchange/torch/pickle_values.h"

namespace io::pickle {
namespace {

// The keys under which programs store a state dict beside epochs, optimizers and options.
constexpr std::array<std::string_view, 9> kUsualKeys = {"state_dict", "model_state_dict", "model",
                                                        "module",     "model_state",      "net",
                                                        "network",    "weights",          "params"};
constexpr int kDeepestNest = 4;
constexpr std::size_t kLongestTensorKey = 4096;

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "a truth value";
    case Kind::kInteger:
      return "a whole number";
    case Kind::kText:
      return "text";
    case Kind::kTuple:
      return "a tuple";
    case Kind::kList:
      return "a list";
    case Kind::kDict:
      return "a dictionary";
    case Kind::kName:
      return "a name";
    case Kind::kStorage:
      return "a storage";
    case Kind::kTensor:
      return "a tensor";
    case Kind::kOther:
      break;
  }
  return "another value";
}

class StateDict {
 public:
  StateDict(const Pickle& pickle, const std::string& file) : pickle_(pickle), file_(file) {}

  std::vector<TensorEntry> read() const {
    const Value* dict = &pickle_.at(pickle_.root);
    if (dict->kind != Kind::kDict)
      fail("holds " + std::string(name_of(dict->kind)) + "; expected a state dict");
    for (int depth = 1; const Value* inner = inner_dict(*dict); dict = inner)
      if (depth++ == kDeepestNest) fail("its state dict is nested more than 4 deep");
    if (!dict->items.empty() && !has_tensor(*dict))
      fail("holds no state dict, neither by itself nor under 'model', 'state_dict' and the like");
    return tensors(*dict);
  }

 private:
  [[noreturn]] void fail(const std::string& fault) const { throw DataError(file_ + ": " + fault); }

  bool has_tensor(const Value& dict) const {
    for (std::size_t i = 1; i < dict.items.size(); i += 2)
      if (pickle_.at(dict.items[i]).kind == Kind::kTensor) return true;
    return false;
  }
  static bool is_usual(const Value& key) {
    return key.kind == Kind::kText &&
           std::find(kUsualKeys.begin(), kUsualKeys.end(), key.text) != kUsualKeys.end();
  }
  // Returns true if the value is, or may contain, a state dict.
  bool is_promising(const Value& value) const {
    if (value.kind != Kind::kDict) return false;
    if (has_tensor(value)) return true;
    for (std::size_t i = 0; i < value.items.size(); i += 2)
      if (is_usual(pickle_.at(value.items[i])) &&
          pickle_.at(value.items[i + 1]).kind == Kind::kDict)
        return true;
    return false;
  }
  // Returns the dictionary under one of the usual keys; nullptr if there is none; throws DataError
  // if there are several.
  const Value* inner_dict(const Value& dict) const {
    const Value* found = nullptr;
    std::string key_found;
    for (std::size_t i = 0; i < dict.items.size(); i += 2) {
      const Value &key = pickle_.at(dict.items[i]), &value = pickle_.at(dict.items[i + 1]);
      if (!is_usual(key) || !is_promising(value)) continue;
      if (found != nullptr)
        fail("holds state dicts under '" + key_found + "' and '" + std::string(key.text) +
             "'; save the one that is meant by itself");
      found = &value;
      key_found = key.text;
    }
    return found;
  }

  std::vector<TensorEntry> tensors(const Value& dict) const {
    std::vector<TensorEntry> entries;
    std::unordered_set<std::string_view> names;
    for (std::size_t i = 0; i < dict.items.size(); i += 2) {
      const Value &key = pickle_.at(dict.items[i]), &value = pickle_.at(dict.items[i + 1]);
      if (key.kind != Kind::kText)
        fail("a key of its state dict is " + std::string(name_of(key.kind)) + "; expected text");
      if (key.text.empty() || key.text.size() > kLongestTensorKey || !base::is_utf8(key.text))
        fail("a key of its state dict is not 1 to 4096 bytes of UTF-8");
      const std::string what = "'" + std::string(key.text) + "'";
      if (!names.insert(key.text).second) fail(what + " stands twice in its state dict");
      if (value.kind != Kind::kTensor)
        fail(what + " is " + name_of(value.kind) +
             "; a state dict holds tensors alone: save model.state_dict() by itself");
      entries.push_back(tensor(std::string(key.text), value, what));
    }
    return entries;
  }

  TensorEntry tensor(std::string name, const Value& value, const std::string& what) const {
    const Value& storage = pickle_.at(value.items[0]);
    TensorEntry entry{.name = std::move(name),
                      .type = &type_of_storage(pickle_, storage),
                      .key = std::string(storage.text),
                      .elements = storage.number,
                      .offset = value.number,
                      .shape = numbers(pickle_.at(value.items[1]), what),
                      .strides = numbers(pickle_.at(value.items[2]), what)};
    if (entry.offset < 0) fail(what + " begins before its storage");
    return entry;
  }
  std::vector<std::int64_t> numbers(const Value& tuple, const std::string& what) const {
    if (tuple.items.size() > 8)
      fail(what + " has " + std::to_string(tuple.items.size()) + " dimensions; at most 8");
    std::vector<std::int64_t> all;
    for (const Ref ref : tuple.items) {
      const Value& value = pickle_.at(ref);
      if (value.kind != Kind::kInteger || value.number < 0)
        fail(what + " has a size or a stride that is not a whole number of at least 0");
      all.push_back(value.number);
    }
    return all;
  }

  const Pickle& pickle_;
  const std::string& file_;
};

}  // namespace

std::vector<TensorEntry> state_dict_of(const Pickle& pickle, const std::string& file) {
  return StateDict(pickle, file).read();
}

}  // namespace io::pickle
