// Applies the rules by which options exclude or require each other, and makes messages about
// values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/options/table/device_request.h"
#include "tools/options/table/option_table.h"

namespace tools {

// Unsets what plays no part (kUnusedSource). Throws ConfigError for contradictions. REQUIRES:
// an entry for every option.
void apply_option_rules(ConfigValues& values);
// Returns a line for each option that an environment variable sets in `given` without effect: the
// rules have unset it in `resolved`, because a source with a higher precedence made another choice.
std::vector<std::string> variables_without_effect(const ConfigValues& given,
                                                  const ConfigValues& resolved);
// Throws ConfigError for a demand of an option that is not met.
void check_demands(const ConfigValues& values);
// Notes in `request` the values that only one kind of device accepts. Throws ConfigError if the
// user named the other kind.
void apply_device_limits(const ConfigValues& values, DeviceRequest& request);

// Returns the options that need option `other`: for "save-dir" "save-every", "keep-last", ...
std::vector<std::string> options_requiring(std::string_view other);

// The values of a run, for checks that no row can state. REQUIRES: they outlive it, and there is an
// entry for every option.
class GivenValues {
 public:
  explicit GivenValues(const ConfigValues& values) : values_(values) {}

  const std::string& text(std::string_view name) const { return values_.find(name)->second.value; }
  bool has(std::string_view name) const { return !text(name).empty(); }
  bool is_chosen(std::string_view name) const {
    return tools::is_chosen(values_.find(name)->second);
  }
  // Throws ConfigError, e.g. "--lr is '-1' (from ENGINE_LR); expected a number above 0". `hint` is
  // a did_you_mean(), or "".
  [[noreturn]] void refuse(const std::string& name, const std::string& expected,
                           const std::string& hint = "") const;
  // Throws ConfigError, e.g. "--crop-padding requires --augment crop", "--resume auto (from
  // run.toml:3) requires --save-dir".
  [[noreturn]] void demand(const std::string& name, const std::string& requirement) const;

 private:
  const ConfigValues& values_;
};

}  // namespace tools
