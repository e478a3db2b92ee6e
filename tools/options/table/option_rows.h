// Declares the rows of the option table, one file per group.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/options/table/option_fields.h"
#include "tools/options/table/option_rules.h"
#include "tools/options/table/option_spec.h"
#include "tools/options/table/run_config.h"

namespace tools {

// Make conditions on another option or, without a name, on the option of the row itself.
inline Condition is(std::string option, std::string choices) {
  return {std::move(option), Condition::Kind::kOneOf, std::move(choices)};
}
inline Condition is(std::string choices) { return is("", std::move(choices)); }
inline Condition on(std::string option = "") { return {std::move(option), Condition::Kind::kOn}; }
inline Condition off(std::string option = "") { return {std::move(option), Condition::Kind::kOff}; }
inline Condition given(std::string option = "") { return {std::move(option)}; }

// Checks conditions that no single row can state, and fills in values that depend on several
// options. Called after all values have been stored. Throws ConfigError.
using GroupCheck = void (*)(const GivenValues& given, RunConfig& config);

struct OptionGroup {
  std::string name;
  std::vector<OptionSpec> rows;
  GroupCheck check = nullptr;
};

// The groups are in the order of --help; help_text.cc has longer headings.
OptionGroup data_rows();  // [run]: model and data
OptionGroup compute_rows();
OptionGroup group_rows();
OptionGroup sync_rows();
OptionGroup batch_rows();
OptionGroup optimizer_rows();
OptionGroup state_rows();
OptionGroup report_rows();
OptionGroup preempt_rows();

// Calls the checks of all groups.
void check_groups(const GivenValues& given, RunConfig& config);

}  // namespace tools
