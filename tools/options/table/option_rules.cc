// Applies the rules for several options in the rows of the table.
#include "tools/options/table/option_rules.h"

#include <algorithm>
#include <map>

#include "io/base/files/io_error.h"
#include "io/base/text/text_parts.h"

namespace tools {
namespace {

std::string shown(const std::string& name, const ConfigValue& value) {
  return "--" + name + " is '" + value.value + "' (from " + value.source + ")";
}

void unset(ConfigValue& value) { value = {"", kUnusedSource}; }

bool is_off(const std::string& text) {
  constexpr std::string_view kOff[] = {"", "false", "none", "off", "0"};
  return std::ranges::find(kOff, text) != std::end(kOff);
}

void apply_exclusion(const std::string& name, const std::string& other_name, ConfigValues& values) {
  ConfigValue &one = values.find(name)->second, &other = values.find(other_name)->second;
  const bool idle =
      one.value.empty() || other.value.empty() || (name == "spawn" && is_off(one.value));
  if (idle) return;
  const Precedence strength = precedence_of(one), other_strength = precedence_of(other);
  if (strength == other_strength)
    throw io::ConfigError(shown(name, one) + " and " + shown(other_name, other) +
                          " exclude each other; give only one");
  unset(strength < other_strength ? one : other);
}

bool is_met(const Condition& condition, const std::string& value) {
  switch (condition.kind) {
    case Condition::Kind::kOn:
      return !is_off(value);
    case Condition::Kind::kOff:
      return is_off(value);
    case Condition::Kind::kGiven:
      return !value.empty();
    case Condition::Kind::kOneOf:
      break;
  }
  const std::vector<std::string> choices = base::split_text(condition.choices, '|'),
                                 parts = base::split_text(value, ',');
  return std::ranges::find_first_of(parts, choices) != parts.end();
}

// An option that has no value, was not given, or is switched off has no needs. A zero switches off
// an option that is zero by default, as --stale.
bool needs_nothing(const std::string& name, const ConfigValue& option) {
  return option.value.empty() || option.value == "false" || option.value == "none" ||
         (option.value == "0" && find_option(name)->default_value == "0") ||
         precedence_of(option) == Precedence::kDefault;
}

// The options that were unset, with the precedence of what they gave way to.
using UnsetOptions = std::map<std::string, Precedence>;

// Returns what an option with that value needs: the choices of the need, or the fewer ones that
// this value demands.
std::string need_text(const OptionSpec& option, const Condition& need, const std::string& value) {
  for (const Demand& demand : option.demands)
    if (is_met(demand.own, value) &&
        std::ranges::any_of(demand.any_of, [&need](const Condition& one) {
          return one.option == need.option && one.kind == need.kind;
        }))
      return demand.text;
  std::string text = "--" + need.option + (need.choices.empty() ? "" : " " + need.choices);
  for (const DeviceLimit& limit : option.limits)
    if (limit.rejected && is_met(limit.own, value)) text += " (" + limit.text + ")";
  return text;
}

void apply_need(const std::string& name, const Condition& need, ConfigValues& values,
                UnsetOptions& gone) {
  ConfigValue& option = values.find(name)->second;
  const ConfigValue& other = values.find(need.option)->second;
  // An option without effect counts as its default.
  const bool idle = other.value.empty() && precedence_of(other) == Precedence::kDefault;
  if (is_met(need, idle ? find_option(need.option)->default_value : other.value)) return;
  const auto gave_way = gone.find(need.option);
  const Precedence strength = gave_way == gone.end() ? precedence_of(other) : gave_way->second;
  if (!needs_nothing(name, option) && precedence_of(option) >= strength) {
    const std::string found = other.value.empty() ? "" : "; " + shown(need.option, other);
    GivenValues(values).demand(name, need_text(*find_option(name), need, option.value) + found);
  }
  if (!option.value.empty()) gone.emplace(name, strength);
  unset(option);
}

// Returns "cpu" or "cuda" if the value names one kind.
std::string_view kind_named(const ConfigValue& value, bool numbers) {
  const std::string& text = value.value;
  if (text.empty() || text == "auto") return "";
  if (numbers) return text == "none" ? "cpu" : "cuda";
  return text.starts_with("cpu") ? "cpu" : "cuda";
}

// --device and the lists beside it must name devices of one kind; the list determines the devices.
void apply_device_rule(const char* list_name, ConfigValues& values) {
  ConfigValue &one = values.find("device")->second, &list = values.find(list_name)->second;
  const std::string_view kind = kind_named(one, false),
                         list_kind = kind_named(list, std::string_view(list_name) == "gpu-devices");
  if (kind.empty() || list_kind.empty() ||
      (kind == list_kind && one.value.find(':') == std::string::npos))
    return;
  const Precedence strength = precedence_of(one), list_strength = precedence_of(list);
  if (strength == list_strength)
    throw io::ConfigError(shown("device", one) + " and " + shown(list_name, list) +
                          " contradict each other; give only one");
  if (strength < list_strength)
    one = {"auto", kUnusedSource};
  else
    unset(list);
}

bool has_value(const ConfigValues& values, const char* name) {
  return !values.find(name)->second.value.empty();
}

// Returns why the rules have unset an option: what it needs, or what excludes it.
// `given`: the value that was unset.
std::string reason_unset(const OptionSpec& option, const std::string& given,
                         const ConfigValues& values) {
  for (const Condition& need : option.needs) {
    const ConfigValue& other = values.find(need.option)->second;
    if (is_met(need, other.value)) continue;
    return "--" + option.name + " requires " + need_text(option, need, given) +
           (other.value.empty() ? "" : "; " + shown(need.option, other));
  }
  for (const OptionSpec& other : train_options()) {
    const ConfigValue& value = values.find(other.name)->second;
    const bool exclude = std::ranges::find(option.excludes, other.name) != option.excludes.end() ||
                         std::ranges::find(other.excludes, option.name) != other.excludes.end();
    if (exclude && is_chosen(value) && !value.value.empty()) return shown(other.name, value);
  }
  // The rule of devices is left.
  const char* other = "device";
  if (option.name == other) other = has_value(values, "devices") ? "devices" : "gpu-devices";
  return shown(other, values.find(other)->second);
}

// --sync auto chooses what is not given.
void leave_to_auto(ConfigValues& values) {
  if (values.find("sync")->second.value != "auto") return;
  for (const std::string& name : options_requiring("sync")) {
    ConfigValue& option = values.find(name)->second;
    if (precedence_of(option) == Precedence::kDefault) unset(option);
  }
}

}  // namespace

std::vector<std::string> options_requiring(std::string_view other) {
  std::vector<std::string> names;
  for (const OptionSpec& option : train_options())
    for (const Condition& need : option.needs)
      if (need.option == other) names.push_back(option.name);
  return names;
}

void apply_option_rules(ConfigValues& values) {
  for (const OptionSpec& option : train_options())
    for (const std::string& other : option.excludes) apply_exclusion(option.name, other, values);
  apply_device_rule("gpu-devices", values);
  apply_device_rule("devices", values);
  UnsetOptions gone;
  for (const OptionSpec& option : train_options())
    for (const Condition& need : option.needs) apply_need(option.name, need, values, gone);
  leave_to_auto(values);
}

std::vector<std::string> variables_without_effect(const ConfigValues& given,
                                                  const ConfigValues& resolved) {
  std::vector<std::string> lines;
  for (const OptionSpec& option : train_options()) {
    const auto value = given.find(option.name);
    if (value == given.end() || precedence_of(value->second) != Precedence::kEnvironment) continue;
    const bool unused = resolved.find(option.name)->second.source == kUnusedSource;
    if (unused && !needs_nothing(option.name, value->second))
      lines.push_back(value->second.source +
                      " has no effect: " + reason_unset(option, value->second.value, resolved));
  }
  return lines;
}

void check_demands(const ConfigValues& values) {
  for (const OptionSpec& option : train_options())
    for (const Demand& demand : option.demands) {
      const auto holds = [&](const Condition& condition) {
        const std::string& name = condition.option.empty() ? option.name : condition.option;
        return is_met(condition, values.find(name)->second.value);
      };
      if (holds(demand.own) && std::ranges::none_of(demand.any_of, holds))
        GivenValues(values).demand(option.name, demand.text);
    }
}

void apply_device_limits(const ConfigValues& values, DeviceRequest& request) {
  for (const OptionSpec& option : train_options())
    for (const DeviceLimit& limit : option.limits) {
      const std::string& value = values.find(option.name)->second.value;
      if (!limit.rejected || !is_met(limit.own, value)) continue;
      const bool cpu = limit.kind == DeviceLimit::Kind::kCpu;
      if (cpu ? request.names_cpu() : request.names_cuda())
        GivenValues(values).demand(option.name,
                                   (cpu ? "--device cuda: " : "--device cpu: ") + limit.text);
      const bool flag = option.type() == OptionSpec::Type::kFlag;
      std::optional<std::string>& only = cpu ? request.cuda_only : request.cpu_only;
      if (!only) only = "--" + option.name + (flag ? "" : " " + value);
    }
}

void GivenValues::refuse(const std::string& name, const std::string& expected,
                         const std::string& hint) const {
  throw io::ConfigError(
      shown(name, values_.find(name)->second) +
      (hint.empty() ? "; expected " + expected : hint + " (expected " + expected + ")"));
}

void GivenValues::demand(const std::string& name, const std::string& requirement) const {
  const ConfigValue& value = values_.find(name)->second;
  const OptionSpec::Type type = find_option(name)->type();
  const bool named = type == OptionSpec::Type::kChoice || type == OptionSpec::Type::kString;
  const std::string option = "--" + name,
                    source = value.source == option ? "" : " (from " + value.source + ")";
  throw io::ConfigError(option + (named ? " " + value.value : "") + source + " requires " +
                        requirement);
}

}  // namespace tools
