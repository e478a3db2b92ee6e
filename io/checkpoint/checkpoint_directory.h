// Saves checkpoints to a run's folder, and finds them there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.h"

namespace io {

// Writes DIR/step-N.ckpt, then its name to `latest`, and with `best` also to `best`. Only after all
// that is durable does it delete the oldest checkpoints beyond keep_last (0 = keep all), and only
// those that this run wrote (Checkpoint::run_id), that are readable, and that `best` does not name.
// Returns the path.
std::string save_to_directory(const Checkpoint& checkpoint, const std::string& directory,
                              int keep_last, bool best = false);
// Returns the newest checkpoint in a folder that loads: first those of the run `run_id`, or
// otherwise of the run that wrote the checkpoint named in `latest`, by step number; then the one
// named in `latest`, then others. Returns "" if there is none; damaged ones, those with the name of
// another step than they state, the target of an old `latest`, and with `run_id` those of other
// runs, are skipped and reported through `skipped`.
// Repeats the search a few times if a run deletes checkpoints meanwhile. Throws DataError if all
// checkpoints are damaged.
std::string find_newest_checkpoint(const std::string& directory, std::vector<std::string>* skipped,
                                   const std::string& run_id = "");

struct DescribedCheckpoint {
  std::string path;
  Checkpoint description;  // without the arrays' data
};
// Returns the checkpoint that find_newest_checkpoint() would return if the arrays' data, which are
// not read, were intact. Returns nothing if there is none. Throws the same.
std::optional<DescribedCheckpoint> find_newest_description(const std::string& directory,
                                                           const std::string& run_id = "");
// Does the same as find_newest_checkpoint() for a run that continues in the folder, and would
// replace newer checkpoints that were skipped. Throws for a newer one that cannot be opened or read
// now (MissingFileError, Error), or has a later format (DataError), instead of going back to an
// earlier one.
std::string find_checkpoint_to_continue(const std::string& directory,
                                        std::vector<std::string>* skipped,
                                        const std::string& run_id = "");
// Frees space: deletes the checkpoints of run `run_id` in the folder except the newest one that
// loads and the one named in `best`. Returns the number of deleted checkpoints. Throws as
// find_newest_checkpoint().
int delete_older_checkpoints(const std::string& directory, const std::string& run_id);
// Returns the name of the checkpoint with the highest step, and reads no more than its head: one
// with the name of another step than it states counts only if there is no other. Returns "" for a
// folder without checkpoints or a folder that does not exist.
std::string newest_checkpoint_name(const std::string& directory);
// Returns the names of the checkpoints of later steps than this. Throws MissingFileError.
std::vector<std::string> checkpoint_names_after(const std::string& directory, std::int64_t step);
// Throws CannotCreateError unless a file can be created in `directory` (which is created if
// missing).
void ensure_writable_directory(const std::string& directory);

}  // namespace io
