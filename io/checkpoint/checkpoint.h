// A checkpoint of a run: named arrays with digests and device tags, plus plain metadata. Format:
// docs/checkpoint-format.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/base/numbers/element_type.h"

namespace io {

using base::DType;

// The purpose of an array; verify and partial loads depend on it.
enum class Section : std::uint8_t {
  kParameter = 1,
  kBuffer = 2,
  kOptimizer = 3,
  kAveraging = 4,
  kRankState = 5,
  kAverage = 6,  // an average of the parameters over time (--ema, --average-last), with the
                 // parameters' names
};
std::string to_string(Section section);  // "parameter"

struct NamedArray {
  std::string name;  // unique in its section; parameters and buffers: PyTorch's state_dict name
  Section section = Section::kParameter;
  DType type = DType::kF32;
  std::vector<std::int64_t> shape;  // in the file (convolution OIHW), at most 8 dimensions
  std::string device = "cpu:0";     // its device when it was saved
  std::vector<std::byte> data;      // row-major, little-endian
};

struct SaveRecord {  // one entry of the history
  std::int64_t step = 0, unix_seconds = 0;
  int world_size = 1;
  std::string build;
};

struct Checkpoint {
  // Progress: completed global steps; the next batch is (epoch, step_in_epoch).
  std::int64_t global_step = 0, epoch = 0, step_in_epoch = 0;
  std::uint64_t seed = 0;
  int world_size = 1;
  std::int64_t samples_seen = 0;
  std::string model, dataset;  // names as on the command line
  std::string config;          // resolved configuration, TOML text
  std::string build;           // version and commit
  std::string vocabulary;   // for a text model: the bytes in the order of their ids, each once; ""
                            // for others
  std::string run_id;       // id of the run that wrote it; "": unknown
  std::string definition;   // the layer list (TOML) of a model from a file; "": a built-in model
  std::string data_digest;  // digest of the training samples and labels; "": unknown
  std::string test_digest;  // the same of the test samples; "": unknown, or there are none
  // Describes a sample and its preparation as JSON; "": unknown. Not checked here.
  std::string samples;
  // The tokenizer.json of the training text's tokens; "": none. Not checked here.
  std::string tokenizer;
  // Policy-specific scalars ("averaging.steps_since_sync" ...), in order.
  std::vector<std::pair<std::string, std::int64_t>> counters;
  std::vector<SaveRecord> history;
  std::vector<NamedArray> arrays;  // model order within each section

  const NamedArray* find(Section section, const std::string& name) const;  // nullptr if absent
};

// Writes `path` atomically: temporary file in the same folder, space reserved, fsync, rename, fsync
// of the folder. Throws CannotCreateError or Error; then `path` is unchanged and no temporary file
// remains.
void save_checkpoint(const Checkpoint& checkpoint, const std::string& path);

// Validates everything (bounds, digests) before returning. Throws MissingFileError or DataError
// with the file and the error.
Checkpoint load_checkpoint(const std::string& path);
// Makes the same checks and throws the same with one block of memory: the file is read once and no
// data are kept.
void check_checkpoint(const std::string& path);
// Loads everything except the arrays' data, which are not read and may be damaged: for listings and
// for choosing among files. Throws the same.
Checkpoint load_description(const std::string& path);
// Returns the bytes that save_checkpoint() would write.
std::vector<std::byte> checkpoint_bytes(const Checkpoint& checkpoint);
// load_checkpoint() from memory, for a checkpoint of another rank. `name` replaces the file name in
// messages.
Checkpoint parse_checkpoint(const std::vector<std::byte>& bytes, const std::string& name);
std::vector<std::byte> read_file(const std::string& path);

// The name in a run's folder: step-00000600.ckpt; `latest` and `best` contain such a name.
std::string checkpoint_file_name(std::int64_t global_step);
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
// The same for a run that continues in the folder, and would replace newer checkpoints that were
// skipped. Throws for a newer one that cannot be opened or read now (MissingFileError, Error), or
// has a later format (DataError), instead of going back to an earlier one.
std::string find_checkpoint_to_continue(const std::string& directory,
                                        std::vector<std::string>* skipped,
                                        const std::string& run_id = "");
// Frees space: deletes the checkpoints of run `run_id` in the folder except the newest one that
// loads and the one named in `best`. Returns the number of deleted checkpoints. Throws as
// find_newest_checkpoint().
int delete_older_snapshots(const std::string& directory, const std::string& run_id);
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
// Returns the name of the checkpoint with the highest step, of which it reads no more than the
// head: one with the name of another step than it states counts only if there is no other. Returns
// "" for a folder without checkpoints or a folder that does not exist.
std::string newest_checkpoint_name(const std::string& directory);
// Returns the names of the checkpoints of later steps than this. Throws MissingFileError.
std::vector<std::string> checkpoint_names_after(const std::string& directory, std::int64_t step);
// Throws CannotCreateError unless a file can be created in `directory` (which is created if
// missing).
void ensure_writable_directory(const std::string& directory);

}  // namespace io
