// Which options exclude or require each other, and validated access to single values.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/options/value_text.h"

namespace tools {

// Unsets what plays no part (source "not used"). Throws ConfigError for contradictions. REQUIRES:
// an entry for every option.
void apply_option_rules(ConfigValues& values);

// What means something only beside option `other`: of "save-dir" "save-every", "keep-last", ...
std::vector<std::string> options_requiring(std::string_view other);

// Throws ConfigError: "--lr is '-1' (from ENGINE_LR); expected a number above 0". `hint` is a
// did_you_mean(), or "".
[[noreturn]] void refuse_value(const std::string& name, const ConfigValue& value,
                               const std::string& expected, const std::string& hint = "");
// Throws ConfigError: "--crop-padding requires --augment crop", "--resume auto (from run.toml:3)
// requires --save-dir".
[[noreturn]] void demand(const std::string& name, const ConfigValue& value,
                         const std::string& requirement);

// Typed reading with ranges; each throws as refuse_value. An unset option gives `unset`.
// REQUIRES: `values` outlives the reader and has a canonical entry for every option.
class ValueReader {
 public:
  explicit ValueReader(const ConfigValues& values) : values_(values) {}

  const std::string& text(const char* name) const { return values_.find(name)->second.value; }
  bool flag(const char* name) const { return text(name) == "true"; }
  Interval interval(const char* name) const { return *parse_interval(text(name)); }
  std::int64_t integer(const char* name, std::int64_t low, std::int64_t high,
                       std::int64_t unset) const;
  int small(const char* name, int low, int high, int unset) const {
    return static_cast<int>(integer(name, low, high, unset));
  }
  std::optional<int> maybe(const char* name, int low, int high) const;
  double real(const char* name, double low, double high, double unset, const char* expected) const;
  double positive(const char* name, double high, double unset) const;
  [[noreturn]] void refuse(const char* name, const std::string& expected,
                           const std::string& hint = "") const {
    refuse_value(name, values_.find(name)->second, expected, hint);
  }
  // As the function above.
  [[noreturn]] void demand(const char* name, const std::string& requirement) const {
    tools::demand(name, values_.find(name)->second, requirement);
  }

 private:
  const ConfigValues& values_;
};

}  // namespace tools
