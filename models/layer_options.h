// Typed access to the tables of a model's TOML file, with messages that name the file and line.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "io/base/formats/toml_parser.h"
#include "io/base/text/nearest.h"
#include "io/base/text/text_parts.h"

namespace models {

// The position of a node in the file, as a prefix of messages. Lines of a list that another file
// was translated to are not lines of that file.
inline std::string place(const std::string& path, const toml::source_region& region) {
  if (path.ends_with(".onnx")) return path + ": ";
  return path + ":" + std::to_string(region.begin.line) + ": ";
}

[[noreturn]] inline void fail(const std::string& path, const toml::source_region& region,
                              const std::string& text) {
  throw engine::ModelError(place(path, region) + text);
}

// An option that a kind of layer reads from its table.
struct OptionDescription {
  std::string key, type;
  std::string otherwise;  // default value as written in a file; "": the option is required
};

// Typed access to one table; keys that no code reads are rejected.
class Options {
 public:
  Options(const std::string& path, const toml::table& table) : path_(path), table_(table) {}

  // From now on, records the options that are read; a missing required option is read as 1.
  void describe_into(std::vector<OptionDescription>& asked) { described_ = &asked; }

  template <class T>
  std::optional<T> find(const std::string& key, const char* type) {
    asked_.push_back(key);
    const toml::node* node = table_.get(key);
    if (node == nullptr) return std::nullopt;
    std::optional<T> value = node->value_exact<T>();
    if (!value) fail(path_, node->source(), "'" + key + "' must be " + type);
    return value;
  }
  std::int64_t integer(const std::string& key, std::int64_t otherwise) {
    describe(key, "integer", std::to_string(otherwise));
    return find<std::int64_t>(key, "an integer").value_or(otherwise);
  }
  std::int64_t integer(const std::string& key) {
    if (describe(key, "integer", "")) return 1;
    const auto value = find<std::int64_t>(key, "an integer");
    if (!value) missing(key);
    return *value;
  }
  // A list of integers, which must be given. `word`, if it is not "", stands for one of them.
  std::vector<std::int64_t> integers(const std::string& key, const std::string& word = "",
                                     std::int64_t meaning = 0) {
    const std::string type = "list of integers" + (word.empty() ? "" : " or \"" + word + "\"");
    if (describe(key, type, "")) return {1};
    asked_.push_back(key);
    const toml::node* node = table_.get(key);
    if (node == nullptr) missing(key);
    if (!node->is_array()) fail(path_, node->source(), "'" + key + "' must be a " + type);
    std::vector<std::int64_t> values;
    for (const toml::node& element : *node->as_array()) {
      const bool is_word = !word.empty() && element.value_exact<std::string>() == word;
      const auto number = element.value_exact<std::int64_t>();
      if (!is_word && !number) fail(path_, element.source(), "'" + key + "' must be a " + type);
      values.push_back(is_word ? meaning : *number);
    }
    return values;
  }
  // A number, or a list of one of these lengths; `type` describes them. T: double accepts integers.
  template <class T>
  std::vector<T> one_or_list(const std::string& key, T otherwise, const char* type,
                             const std::vector<std::size_t>& lengths) {
    describe(key, type, base::shortest_text(static_cast<double>(otherwise)));
    asked_.push_back(key);
    const toml::node* node = table_.get(key);
    if (node == nullptr) return {otherwise};
    const auto number = [&](const toml::node& from) {
      const bool fits = from.is_integer() || (from.is_number() && std::is_floating_point_v<T>);
      if (!fits) fail(path_, from.source(), "'" + key + "' must be " + type);
      return *from.value<T>();
    };
    if (!node->is_array()) return {number(*node)};
    std::vector<T> values;
    for (const toml::node& element : *node->as_array()) values.push_back(number(element));
    if (std::find(lengths.begin(), lengths.end(), values.size()) == lengths.end())
      refuse(key, "'" + key + "' must be " + type);
    return values;
  }
  // An integer, or a word that stands for one.
  std::int64_t integer_or(const std::string& word, std::int64_t meaning, const std::string& key) {
    if (describe(key, "integer or \"" + word + "\"", "")) return 1;
    if (!is_text(key)) return integer(key);
    if (text(key) != word) refuse(key, "'" + key + "' must be an integer or \"" + word + "\"");
    return meaning;
  }
  double number(const std::string& key, double otherwise) {
    describe(key, "number", base::shortest_text(otherwise));
    const toml::node* node = table_.get(key);
    if (node != nullptr && node->is_integer()) return static_cast<double>(integer(key));
    return find<double>(key, "a number").value_or(otherwise);
  }
  bool boolean(const std::string& key, bool otherwise) {
    describe(key, "true or false", otherwise ? "true" : "false");
    return find<bool>(key, "true or false").value_or(otherwise);
  }
  std::optional<std::string> text(const std::string& key) {
    return find<std::string>(key, "a string");
  }

  // With `words`, it must be one of them; without `otherwise`, it must be given.
  std::string text(const std::string& key, const std::string& otherwise,
                   const std::vector<std::string>& words = {}) {
    const std::string type = words.empty() ? "text" : base::join_text(words, " or ");
    if (describe(key, type, otherwise.empty() ? "" : "\"" + otherwise + "\"") && !words.empty())
      return words.front();
    const auto value = text(key);
    if (!value && otherwise.empty()) missing(key);
    std::string found = value.value_or(otherwise);
    if (!words.empty() && std::find(words.begin(), words.end(), found) == words.end())
      refuse(key, "unknown " + key + " '" + found + "'" + base::did_you_mean(found, words) +
                      " (known: " + base::join_text(words) + ")");
    return found;
  }

  template <class T>
  std::optional<std::vector<T>> list(const std::string& key, const char* type) {
    asked_.push_back(key);
    const toml::node* node = table_.get(key);
    if (node == nullptr) return std::nullopt;
    std::vector<T> values;
    const toml::array* array = node->as_array();
    if (array == nullptr) fail(path_, node->source(), "'" + key + "' must be a list of " + type);
    for (const toml::node& element : *array) {
      const std::optional<T> value = element.value_exact<T>();
      if (!value) fail(path_, element.source(), "'" + key + "' must be a list of " + type);
      values.push_back(*value);
    }
    return values;
  }
  void allow(const std::string& key) { asked_.push_back(key); }
  void refuse_other_keys(const std::string& where) const {
    for (const auto& [key, node] : table_) {
      const std::string name(key.str());
      if (std::find(asked_.begin(), asked_.end(), name) != asked_.end()) continue;
      std::vector<std::string> missing = asked_;  // a key cannot be given twice
      std::erase_if(missing, [&](const std::string& known) { return table_.contains(known); });
      fail(path_, key.source(),
           "unknown key '" + name + "' in " + where + base::did_you_mean(name, missing) +
               " (known: " + base::join_text(asked_) + ")");
    }
  }
  [[noreturn]] void refuse(const std::string& key, const std::string& text) const {
    fail(path_, table_.get(key) != nullptr ? table_.get(key)->source() : table_.source(), text);
  }

 private:
  [[noreturn]] void missing(const std::string& key) const {
    fail(path_, table_.source(), "'" + key + "' is missing");
  }
  bool is_text(const std::string& key) const {
    return table_.get(key) != nullptr && table_.get(key)->is_string();
  }
  bool describe(const std::string& key, const std::string& type, const std::string& otherwise) {
    if (described_ != nullptr) described_->push_back({key, type, otherwise});
    return described_ != nullptr;
  }

  const std::string& path_;
  const toml::table& table_;
  std::vector<OptionDescription>* described_ = nullptr;
  std::vector<std::string> asked_;
};

}  // namespace models
