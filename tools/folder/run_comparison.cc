// Compares the options of a run with those of its resumption.
#include "tools/folder/run_comparison.h"

#include <algorithm>

#include "io/base/files/io_error.h"
#include "models/model_catalog.h"
#include "tools/options/table/value_text.h"

namespace tools {
namespace {

using OnResume = OptionSpec::OnResume;

// Returns the canonical spelling; "" if it is unset on purpose.
std::string value_of(const ConfigValues& values, const OptionSpec& option) {
  const auto entry = values.find(option.name);
  const std::string value = entry == values.end() || entry->second.value.empty()
                                ? option.default_value
                                : entry->second.value;
  return canonical_text(option, value).value_or(value);
}

std::string shown(const std::string& value) { return value.empty() ? "unset" : value; }

OptionChange change_of(const OptionSpec& option, const std::string& before, const std::string& now,
                       const ConfigValues& values) {
  const auto entry = values.find(option.name);
  return {option.name, shown(before), shown(now),
          entry == values.end() ? kDefaultSource : entry->second.source,
          option.on_resume == OnResume::kReject};
}

// Returns true if the change of another option that is reported implies this one: --epochs with
// --steps, options of the former optimizer. Other options that are dropped are reported.
bool is_implied(const OptionChange& change) {
  const bool is_length = change.name == "epochs" || change.name == "steps";
  const bool of_optimizer =
      std::ranges::count(find_option(change.name)->needs, "optimizer", &Condition::option) > 0;
  return change.source == kUnusedSource && !change.experiment && (is_length || of_optimizer);
}

// An option that the change of another one leaves without an effect (--synthetic-shape with another
// --dataset) makes no experiment of its own: the other change is checked.
void join_to_causes(std::vector<OptionChange>& changes) {
  const std::vector<OptionChange> all = changes;
  for (OptionChange& change : changes) {
    if (change.source != kUnusedSource) continue;
    const auto is_cause = [&](const Condition& need) {
      return std::ranges::any_of(all, [&](const OptionChange& other) {
        return other.experiment && other.name == need.option;
      });
    };
    if (std::ranges::any_of(find_option(change.name)->needs, is_cause)) change.experiment = false;
  }
}

// For a run whose length was given by --steps, the epochs are not a number.
bool had_no_epochs(const ConfigValues& before) {
  const auto set = [&](const char* name) {
    const auto entry = before.find(name);
    return entry != before.end() && !entry->second.value.empty();
  };
  return set("steps") && !set("epochs");
}

}  // namespace

std::vector<OptionChange> option_changes(const ConfigValues& before, const ConfigValues& now) {
  std::vector<OptionChange> changes;
  // An imported checkpoint has only the options of its model and data.
  const bool whole = before.contains("epochs") || before.contains("steps");
  for (const OptionSpec& option : train_options()) {
    if (!whole && !before.contains(option.name)) continue;
    if (option.on_resume == OnResume::kOneStart || option.on_resume == OnResume::kPlace) continue;
    const std::string old_value = value_of(before, option), new_value = value_of(now, option);
    if (old_value == new_value) continue;
    OptionChange change = change_of(option, old_value, new_value, now);
    if (change.name == "epochs" && had_no_epochs(before)) change.before = shown("");
    if (!is_implied(change)) changes.push_back(change);
  }
  join_to_causes(changes);
  return changes;
}

std::vector<OptionChange> place_changes(const ConfigValues& before, const ConfigValues& now) {
  std::vector<OptionChange> changes;
  for (const OptionSpec& option : train_options()) {
    if (option.on_resume != OnResume::kPlace) continue;
    const std::string old_value = value_of(before, option), new_value = value_of(now, option);
    if (old_value != new_value) changes.push_back(change_of(option, old_value, new_value, now));
  }
  return changes;
}

std::string change_text(const OptionChange& change) {
  return change.name + " " + change.before + " -> " + change.now + " (" + change.source + ")";
}

namespace {

// Returns an alternative for a user who requested this change. Two built-in models never have the
// same arrays.
std::string advice(const OptionChange& change) {
  const auto is_file = [built_in = models::model_names()](const std::string& model) {
    return std::ranges::find(built_in, model) == built_in.end();
  };
  const bool other_arrays =
      change.name == "model" && !is_file(change.before) && !is_file(change.now);
  const OptionSpec::Arrays arrays = find_option(change.name)->arrays;
  if (other_arrays || arrays == OptionSpec::Arrays::kDiffer)
    return "leave it as it was, or start a new run";
  return "leave it as it was, start a new run, or give --allow-change " + change.name +
         (arrays == OptionSpec::Arrays::kMayDiffer
              ? " if the model's arrays keep their names and shapes"
              : "");
}

}  // namespace

void check_changes(const std::vector<OptionChange>& changes,
                   const std::vector<std::string>& allowed, const std::string& run) {
  for (const OptionChange& change : changes)
    if (change.experiment && std::ranges::find(allowed, change.name) == allowed.end())
      throw io::ConfigError(run + " was trained with --" + change.name + " " + change.before +
                            ", asked for is " + change.now + " (" + change.source +
                            "): " + advice(change));
}

}  // namespace tools
