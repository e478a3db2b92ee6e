// Which options exclude or require each other, as their rows say, and messages about values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/options/table/option_table.h"

namespace tools {

// Unsets what plays no part (kUnusedSource). Throws ConfigError for contradictions. REQUIRES:
// an entry for every option.
void apply_option_rules(ConfigValues& values);
// Enters what --lr and --weight-decay are by default with the optimizer chosen.
void complete_by_optimizer(ConfigValues& values);
// Throws ConfigError for a demand of an option that is not met.
void check_demands(const ConfigValues& values);

// What means something only beside option `other`: of "save-dir" "save-every", "keep-last", ...
std::vector<std::string> options_requiring(std::string_view other);

// The values of a run, for checks that no row can state. REQUIRES: they outlive it, and there is an
// entry for every option.
class GivenValues {
 public:
  explicit GivenValues(const ConfigValues& values) : values_(values) {}

  const std::string& text(std::string_view name) const { return values_.find(name)->second.value; }
  bool has(std::string_view name) const { return !text(name).empty(); }
  // Throws ConfigError: "--lr is '-1' (from ENGINE_LR); expected a number above 0". `hint` is a
  // did_you_mean(), or "".
  [[noreturn]] void refuse(const std::string& name, const std::string& expected,
                           const std::string& hint = "") const;
  // Throws ConfigError: "--crop-padding requires --augment crop", "--resume auto (from run.toml:3)
  // requires --save-dir".
  [[noreturn]] void demand(const std::string& name, const std::string& requirement) const;

 private:
  const ConfigValues& values_;
};

}  // namespace tools
