// Typed access to the settings of config.json.
#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/core/error.h"

namespace models {

inline constexpr std::int64_t kMaxExtent = std::int64_t{1} << 24;

// The members of an object. A null is a member that is missing. Throws engine::ModelError
// "`source`:
// ..." for a member of another type or range, with what is supported.
class Settings {
 public:
  using Json = nlohmann::json;

  Settings(const Json& json, std::string source) : json_(json), source_(std::move(source)) {}

  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }

  // Returns the alias if it is set, which has precedence in `transformers`, else `key`.
  const char* key_of(const char* key, const char* alias) const { return has(alias) ? alias : key; }
  std::int64_t integer(const char* key, std::optional<std::int64_t> otherwise = std::nullopt,
                       std::int64_t max = kMaxExtent) const {
    const std::string expected = "an integer from 1 to " + std::to_string(max);
    if (!has(key)) return otherwise ? *otherwise : missing(key, expected);
    const Json& value = json_[key];
    if (!value.is_number_integer() || value < 1 || value > max) refuse(key, expected);
    return value.get<std::int64_t>();
  }
  double number(const char* key, double otherwise, double low, const std::string& bound) const {
    if (!has(key)) return otherwise;
    const Json& value = json_[key];
    if (!value.is_number() || !(value.get<double>() >= low)) refuse(key, "a number " + bound);
    return value.get<double>();
  }
  bool flag(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_[key].is_boolean()) refuse(key, "true or false");
    return json_[key].get<bool>();
  }
  std::string text(const char* key, const std::string& otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_[key].is_string()) refuse(key, "text");
    return json_[key].get<std::string>();
  }
  // An id, or a list of ids; empty if it is missing.
  std::vector<std::int64_t> ids(const char* key) const {
    if (!has(key)) return {};
    const Json list = json_[key].is_array() ? json_[key] : Json::array({json_[key]});
    const auto is_id = [](const Json& id) { return id.is_number_integer(); };
    if (!std::ranges::all_of(list, is_id)) refuse(key, "a token id, or a list of them");
    return list.get<std::vector<std::int64_t>>();
  }
  // Throws unless the setting is missing or has this value.
  void only(const char* key, const Json& value, const std::string& expected) const {
    if (has(key) && json_[key] != value) refuse(key, expected);
  }
  std::optional<Settings> object(const char* key) const {
    if (!has(key)) return std::nullopt;
    if (!json_[key].is_object()) refuse(key, "an object or null");
    return Settings(json_[key], source_ + ": " + key);
  }
  const Json& json() const { return json_; }
  const std::string& source() const { return source_; }

  [[noreturn]] void refuse(const char* key, const std::string& expected) const {
    constexpr std::size_t kShown = 80;
    const bool is_there = json_.contains(key);
    std::string found =
        is_there ? json_[key].dump(-1, ' ', true, Json::error_handler_t::replace) : "missing";
    if (found.size() > kShown) found = found.substr(0, kShown) + "...";
    throw engine::ModelError(source_ + ": '" + key + "' is " + found + "; supported: " + expected);
  }

 private:
  [[noreturn]] std::int64_t missing(const char* key, const std::string& expected) const {
    throw engine::ModelError(source_ + ": '" + key + "' is missing; expected " + expected);
  }

  const Json& json_;
  std::string source_;
};

}  // namespace models
