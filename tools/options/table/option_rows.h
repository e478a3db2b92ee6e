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

// Make limits of devices: values for one kind only, and values with which a kind differs.
inline DeviceLimit only_cuda(Condition own, std::string why) {
  return {DeviceLimit::Kind::kCpu, std::move(own), true, std::move(why)};
}
inline DeviceLimit on_cpus(Condition own, std::string how) {
  return {DeviceLimit::Kind::kCpu, std::move(own), false, std::move(how)};
}
inline DeviceLimit on_cuda(Condition own, std::string how) {
  return {DeviceLimit::Kind::kCuda, std::move(own), false, std::move(how)};
}

// Checks conditions that no single row can state, and fills in values that depend on several
// options. Called after all values have been stored. Throws ConfigError.
using GroupCheck = void (*)(const GivenValues& given, RunConfig& config);

struct OptionGroup {
  std::string name;
  std::vector<OptionSpec> rows;
  GroupCheck check = nullptr;
};

// The groups are in the order of --help; help_text.cc has longer headings.
// Defined in tools/options/rows/*_rows.cc.
OptionGroup data_rows();  // [run]: model and data
OptionGroup compute_rows();
OptionGroup group_rows();
OptionGroup sync_rows();
OptionGroup batch_rows();
OptionGroup optimizer_rows();
OptionGroup state_rows();
OptionGroup report_rows();
OptionGroup preempt_rows();

// Sets the defaults of --lr and --weight-decay for the chosen optimizer.
// Defined in tools/options/rows/optimizer_rows.cc.
void complete_by_optimizer(ConfigValues& values);

// Calls the checks of all groups.
void check_groups(const GivenValues& given, RunConfig& config);

}  // namespace tools
