// Which options make an experiment what it is, and which belong to a single start.
#include "tools/run/run_comparison.h"

#include <algorithm>
#include <array>

#include "io/base/files/io_error.h"
#include "tools/options/value_text.h"

namespace tools {
namespace {

// Another value trains another model, on other samples, or in another order.
constexpr auto kExperiment = std::to_array<std::string_view>(
    {"model",           "dropout",           "dataset",      "limit",
     "context",         "text-stride",       "task",         "vocabulary-size",
     "image-size",      "label-column",      "csv-header",   "test-share",
     "columns",         "ignore-columns",    "separator",    "synthetic-shape",
     "synthetic-size",  "synthetic-classes", "loss",         "dtype",
     "normalize",       "augment",           "crop-padding", "cutout-size",
     "shuffle",         "sampler",           "seed",         "optimizer",
     "label-smoothing", "reduction",         "freeze",       "csv-decimal",
     "csv-missing",     "token-bits"});

// Another value gives the model other arrays than the snapshot has, whatever is allowed.
constexpr auto kNeverFits =
    std::to_array<std::string_view>({"dtype", "vocabulary-size", "synthetic-classes", "task"});

// It may, as far as the options tell.
constexpr auto kMayNotFit = std::to_array<std::string_view>(
    {"model", "dataset", "context", "image-size", "label-column", "csv-header", "columns",
     "ignore-columns", "separator", "csv-decimal", "csv-missing", "synthetic-shape"});

// Where the data lie: they may have moved, so their content is compared instead.
constexpr auto kPlaces = std::to_array<std::string_view>({"data-dir", "annotations"});

// Of one start: which ranks it has, where it writes, how it was asked to begin.
constexpr auto kOfOneStart = std::to_array<std::string_view>(
    {"rank",         "local-rank",      "world-size",     "init-method",  "iface",
     "port-rule",    "job-id",          "save-dir",       "resume",       "overwrite",
     "allow-change", "init-from",       "allow-mismatch", "metrics",      "log-gpu",
     "flight-dir",   "stage",           "requeue",        "map-location", "progress",
     "tensorboard",  "tensorboard-dir", "histograms",     "prometheus",   "tensorboard-samples",
     "trace",        "trace-steps",     "quiet",          "verbose",      "log-file",
     "log-format",   "log-ranks",       "init-coding"});

template <std::size_t kCount>
bool contains(const std::array<std::string_view, kCount>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// In one spelling; "" where it is unset on purpose.
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
          entry == values.end() ? "default" : entry->second.source,
          contains(kExperiment, option.name)};
}

// --epochs beside --steps, for example: the change of the other one says it.
bool plays_no_part(const OptionChange& change) {
  return change.source == "not used" && !change.experiment;
}

// Of a run that was as long as --steps said, its epochs are no number.
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
  // A snapshot that was imported knows the options of its model and data only.
  const bool whole = before.contains("epochs") || before.contains("steps");
  for (const OptionSpec& option : train_options()) {
    if (!whole && !before.contains(option.name)) continue;
    if (contains(kOfOneStart, option.name) || contains(kPlaces, option.name)) continue;
    const std::string old_value = value_of(before, option), new_value = value_of(now, option);
    if (old_value == new_value) continue;
    OptionChange change = change_of(option, old_value, new_value, now);
    if (change.name == "epochs" && had_no_epochs(before)) change.before = shown("");
    if (!plays_no_part(change)) changes.push_back(change);
  }
  return changes;
}

std::vector<OptionChange> place_changes(const ConfigValues& before, const ConfigValues& now) {
  std::vector<OptionChange> changes;
  for (const std::string_view name : kPlaces) {
    const OptionSpec& option = *find_option(name);
    const std::string old_value = value_of(before, option), new_value = value_of(now, option);
    if (old_value != new_value) changes.push_back(change_of(option, old_value, new_value, now));
  }
  return changes;
}

std::string change_text(const OptionChange& change) {
  return change.name + " " + change.before + " -> " + change.now + " (" + change.source + ")";
}

namespace {

// What somebody who asked for this change may do instead. Two built-in models have never the same
// arrays.
std::string advice(const OptionChange& change) {
  const bool other_arrays =
      change.name == "model" && !change.before.ends_with(".toml") && !change.now.ends_with(".toml");
  if (other_arrays || contains(kNeverFits, change.name))
    return "leave it as it was, or start a new run";
  return "leave it as it was, start a new run, or give --allow-change " + change.name +
         (contains(kMayNotFit, change.name) ? " if the model's arrays keep their names and shapes"
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

bool belongs_to_one_start(std::string_view name) { return contains(kOfOneStart, name); }

ConfigValues options_of_run(const ConfigValues& values) {
  ConfigValues kept = values;
  std::erase_if(kept, [](const auto& entry) { return belongs_to_one_start(entry.first); });
  return kept;
}

}  // namespace tools
