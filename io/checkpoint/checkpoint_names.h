// The names of the checkpoints in a run's folder, and the files `latest` and `best`, which contain
// one of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace io {

inline constexpr const char *kLatest = "latest", *kBest = "best";

// Returns the step of "step-00000600.ckpt"; nothing for any other name.
std::optional<std::int64_t> step_of_name(const std::string& name);

// Returns the path of the checkpoint of a step in a folder.
std::string checkpoint_path(const std::string& directory, std::int64_t step);

// Returns the step named in `latest` or `best`. It is data from a file: only a checkpoint's plain
// name is accepted. Throws Error if the file cannot be read: otherwise the best checkpoint would be
// pruned.
std::optional<std::int64_t> named_step(const std::string& directory, const char* which);

// The name in a run's folder: step-00000600.ckpt; `latest` and `best` contain one.
std::string checkpoint_file_name(std::int64_t global_step);
// Returns the checkpoint named in `best`; "" if there is no name or the checkpoint does not exist.
// Throws Error if `best` cannot be read.
std::string find_best_checkpoint(const std::string& directory);
// Returns the name of the checkpoint in `best` if that checkpoint does not exist; else "". Throws
// the same.
std::string missing_best_checkpoint(const std::string& directory);
// The same for `latest`.
std::string missing_latest_checkpoint(const std::string& directory);
// Lets `best` name this checkpoint of the folder, if it does not already. Throws as
// save_to_directory().
void name_best(const std::string& directory, std::int64_t step);
// For a run that continues from the checkpoint of `step`, whose best evaluation so far was at step
// `best` (none: no evaluation): if `latest` or `best` names a later checkpoint, it then names this
// one and that of the best evaluation, or is removed if there is no such file. Returns what was
// done to `best`, "" if nothing. Throws CannotCreateError or Error.
std::string name_earlier_checkpoints(const std::string& directory, std::int64_t step,
                                     std::optional<std::int64_t> best);
// Called before run `run_id` saves the checkpoint of `step`: renames a file of that name that is
// not an intact checkpoint of this run and step to NAME.kept-1 (or the next free number). Returns a
// notice, "" if there is no such file. Throws CannotCreateError.
std::string keep_replaced_file(const std::string& directory, std::int64_t step,
                               const std::string& run_id);

}  // namespace io
