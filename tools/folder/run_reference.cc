// Finds checkpoints in folders, and takes options from run.json.
#include "tools/folder/run_reference.h"

#include <filesystem>
#include <optional>

#include "engine/optim/optimizer_spec.h"
#include "io/base/files/io_error.h"
#include "io/base/text/escape_text.h"
#include "io/checkpoint/checkpoint_directory.h"
#include "io/checkpoint/checkpoint_names.h"
#include "models/model_catalog.h"
#include "models/published/foreign_folder.h"
#include "tools/folder/output_paths.h"
#include "tools/folder/resume_source.h"
#include "tools/folder/run_comparison.h"
#include "tools/folder/run_folder.h"
#include "tools/folder/run_record.h"
#include "tools/options/input/config_sources.h"
#include "tools/options/table/option_rows.h"
#include "tools/options/table/option_rules.h"
#include "tools/options/table/run_config.h"
#include "tools/options/table/value_text.h"
#include "tools/report/output/run_log.h"

namespace tools {
namespace {

namespace fs = std::filesystem;

std::string value_of(const ConfigValues& values, const char* name) {
  const auto found = values.find(name);
  return found == values.end() ? "" : found->second.value;
}

// A path as a backend's name is a shared library, which would run with the user's rights. The
// sender of a run chooses its files, so only the command line, the environment or a config file may
// name one. The name of a plug-in finds libraries only in the program's own folders.
void check_names_no_code(const std::string& name, const std::string& value,
                         const std::string& source) {
  if (name == "backend" && value.find('/') != std::string::npos)
    throw io::ConfigError(source + ": its backend is " + base::escape_text(value) +
                          ", a shared library; a stored file may only name a backend, since the "
                          "library runs with your rights: give --backend");
}

// A default of the run keeps that source, which would not show the location of a bad value.
void check_stored(const std::string& name, const std::string& value, const std::string& source) {
  const OptionSpec& option = *find_option(name);
  RunConfig scratch;
  const std::optional<std::string> text = canonical_text(option, value);
  const std::optional<ValueFault> fault =
      text ? option.field.store(scratch, *text) : ValueFault{.expected = expected_text(option)};
  if (fault)
    throw io::ConfigError("--" + name + " is '" + base::escape_text(value) + "' (from " + source +
                          ":" + name + "); expected " + fault->expected);
}

// Adds values as if from a configuration file, with the lowest precedence. A default stays a
// default.
void add(const ConfigValues& saved, const std::string& source, ConfigValues& values) {
  for (const auto& [name, entry] : saved) {
    if (entry.value.empty() || belongs_to_one_start(name) || values.contains(name)) continue;
    check_names_no_code(name, entry.value, source);
    check_stored(name, entry.value, source);
    values[name] = {entry.value, is_default(entry) ? kDefaultSource : source + ":" + name};
  }
}

// Another optimizer has other defaults, so values that the user did not give are dropped. The
// configuration in a checkpoint has no sources, so there a value that equals the old optimizer's
// default counts as such.
void forget_defaults(ConfigValues& saved, const ConfigValues& values, bool with_sources) {
  const std::string before = value_of(saved, "optimizer"), now = value_of(values, "optimizer");
  if (before.empty() || now.empty() || before == now) return;
  ConfigValues defaults{{"optimizer", {before, ""}}, {"lr", {}}, {"weight-decay", {}}};
  if (engine::find_optimizer(before) != nullptr) complete_by_optimizer(defaults);
  const auto was_default = [&](const char* name) {
    const auto entry = saved.find(name);
    if (entry == saved.end()) return false;
    return with_sources ? is_default(entry->second)
                        : entry->second.value == value_of(defaults, name);
  };
  for (const char* name : {"lr", "weight-decay"})
    if (was_default(name)) saved.erase(name);
}

// Ranks that are placed manually or by a launcher are not spawned.
void drop_spawn_of_others(ConfigValues& values) {
  for (const char* name : {"rank", "world-size", "init-method"})
    if (values.contains(name)) values.erase("spawn");
}

// Returns true if the checkpoint is in the folder of the run that wrote it.
bool is_of_the_run_in(const std::string& folder, const std::string& run_id) {
  if (run_id.empty()) return false;
  std::string fault;
  const std::optional<RunRecord> record = find_run_record(folder, fault);
  return record && record->id == run_id;
}

// Drops options that only a run with a folder can have.
void drop_options_of_saving(ConfigValues& saved) {
  for (const std::string& name : options_requiring("save-dir")) saved.erase(name);
  if (value_of(saved, "early-stop").empty()) saved.erase("keep-best");
}

// Takes the checkpoint's own configuration; returns the layer list of its model if that is used.
// `in_folder`: the checkpoint is in a folder in which the run continues anyway.
std::string take_checkpoint(const io::DescribedCheckpoint& source, bool in_folder,
                            ConfigValues& values) {
  const bool spawned_by_user = values.contains("spawn");
  const auto& [path, checkpoint] = source;
  refuse_import(checkpoint, path);
  std::string definition = value_of(values, "model").empty() ? checkpoint.definition : "";
  ConfigValues saved = options_in(checkpoint, path);
  forget_defaults(saved, values, /*with_sources=*/false);
  if (!in_folder && value_of(values, "save-dir").empty()) {
    const std::string parent = fs::path(path).parent_path().string();
    const std::string folder = parent.empty() ? "." : parent;
    if (is_of_the_run_in(folder, checkpoint.run_id))
      values["save-dir"] = {folder, "--resume"};
    else
      drop_options_of_saving(saved);
  }
  add(saved, path, values);
  if (!spawned_by_user) drop_spawn_of_others(values);
  return definition;
}

std::string take_folder(const std::string& folder, ConfigValues& values) {
  const bool spawned_by_user = values.contains("spawn");
  std::string definition, fault;
  if (std::optional<RunRecord> record = find_run_record(folder, fault)) {
    forget_defaults(record->options, values, /*with_sources=*/true);
    if (value_of(values, "model").empty()) definition = record->definition;
    add(record->options, run_record_path(folder), values);
    if (!spawned_by_user) drop_spawn_of_others(values);
  } else {
    const auto newest = resume_source(Resume::parse(folder), "");
    if (!newest && !fault.empty())
      throw io::DataError(fault + "; " + folder + " has no checkpoint to continue from either");
    if (!newest) {
      const std::string unstarted = unstarted_run_text(folder);
      throw io::ConfigError(
          "--resume " +
          (unstarted.empty()
               ? folder + ": the folder holds no run (no run.json, no checkpoint)"
               : unstarted + "; start it with --save-dir " + folder + " and its options"));
    }
    definition = take_checkpoint(*newest, /*in_folder=*/true, values);
  }
  const std::string save_dir = value_of(values, "save-dir");
  std::error_code unknown;
  if (!save_dir.empty() && !fs::equivalent(save_dir, folder, unknown)) return definition;
  values["save-dir"] = {folder, "--resume"};
  values["resume"].value = "auto";
  return definition;
}

// Returns the checkpoint that `best` names; "" if it names none. Throws io::MissingFileError if the
// checkpoint does not exist: the newest may be a much worse model. A running run that writes a
// better one deletes the former after it has changed `best`, which is then read again.
std::string best_checkpoint(const std::string& folder) {
  constexpr int kReads = 10;
  std::string missing;
  for (int read = 0; read < kReads; ++read) {
    if (std::string best = io::find_best_checkpoint(folder); !best.empty()) return best;
    const std::string name = io::missing_best_checkpoint(folder);
    if (name.empty() || name == missing) break;
    missing = name;
  }
  if (missing.empty()) return "";
  const std::string newest = io::newest_checkpoint_name(folder);
  throw io::MissingFileError(
      folder + ": `best` names " + missing + ", which does not exist; the newest checkpoint is " +
      (newest.empty() ? "missing as well" : newest) + ": give the path of a checkpoint");
}

}  // namespace

std::string find_checkpoint(const std::string& path, CheckpointChoice wanted) {
  if (path.empty()) throw io::MissingFileError("the name of the run or checkpoint is empty");
  std::error_code unknown;
  if (!fs::is_directory(path, unknown)) return path;
  if (models::is_published_model(path) && !has_run_record(path)) {
    if (const std::string adapter = models::unused_adapter_text(path); !adapter.empty())
      print_notice("warning: " + path + ": " + adapter);
    return path;
  }
  if (wanted == CheckpointChoice::kBest)
    if (std::string best = best_checkpoint(path); !best.empty()) return best;
  std::vector<std::string> skipped;
  std::string newest = io::find_newest_checkpoint(path, &skipped);
  if (newest.empty()) {
    const std::string unstarted = unstarted_run_text(path);
    const std::string what = models::foreign_folder_text(path);
    throw io::MissingFileError(!unstarted.empty() ? unstarted
                                                  : "no checkpoint in " + path +
                                                        (what.empty() ? "" : ": " + what));
  }
  for (const std::string& why : skipped) print_notice("skipped a checkpoint: " + why);
  return newest;
}

std::string checkpoint_choice_text(const std::string& path, CheckpointChoice wanted,
                                   const std::string& file) {
  if (file == path) return "";
  const bool best = wanted == CheckpointChoice::kBest && io::find_best_checkpoint(path) == file;
  return path + ": its " + (best ? "best" : "newest") + " checkpoint, " +
         fs::path(file).filename().string();
}

ConfigValues options_in(const io::Checkpoint& checkpoint, const std::string& path) {
  ConfigValues options;
  apply_config_text(checkpoint.config, path, options);
  return options;
}

bool is_import(const io::Checkpoint& checkpoint) {
  return checkpoint.global_step == 0 && checkpoint.run_id.empty();
}

void refuse_import(const io::Checkpoint& checkpoint, const std::string& path) {
  if (is_import(checkpoint))
    throw io::ConfigError(path + " is an import, which has weights but no run to continue: " +
                          "use --init-from " + path);
}

std::string take_resumed_run(ConfigValues& values) {
  const std::string resume = value_of(values, "resume");
  std::error_code unknown;
  if (resume.empty() || resume == "none" || resume == "auto") return "";
  if (fs::is_directory(resume, unknown)) return take_folder(resume, values);
  if (!value_of(values, "model").empty() && !value_of(values, "dataset").empty()) return "";
  return take_checkpoint(*resume_source(Resume::parse(resume), ""), /*in_folder=*/false, values);
}

}  // namespace tools
