// A snapshot of a run: named arrays with digests and device tags, plus plain metadata. Format:
// docs/checkpoint-format.md.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/base/numbers/element_type.h"

namespace io {

using base::DType;

// What an array is for; verify and partial loads go by this.
enum class Section : std::uint8_t {
  kParameter = 1,
  kBuffer = 2,
  kOptimizer = 3,
  kAveraging = 4,
  kRankState = 5,
  kAverage = 6,  // of the parameters over time (--ema, --average-last); names as the parameters'
};
std::string to_string(Section section);  // "parameter"

struct NamedArray {
  std::string
      name;  // unique within its section; PyTorch's state_dict name for parameters and buffers
  Section section = Section::kParameter;
  DType type = DType::kF32;
  std::vector<std::int64_t>
      shape;                     // file shape (convolution OIHW), row-major, at most 8 dimensions
  std::string device = "cpu:0";  // where it lived when it was saved
  std::vector<std::byte> data;   // little-endian
};

struct SaveRecord {  // one line of the history
  std::int64_t step = 0, unix_seconds = 0;
  int world_size = 1;
  std::string build;
};

struct Checkpoint {
  // Progress: global steps done; the next batch is (epoch, step_in_epoch).
  std::int64_t global_step = 0, epoch = 0, step_in_epoch = 0;
  std::uint64_t seed = 0;
  int world_size = 1;
  std::int64_t samples_seen = 0;
  std::string model, dataset;  // names as on the command line
  std::string config;          // resolved configuration, TOML text
  std::string build;           // version and commit
  std::string vocabulary;  // of a model on text: the bytes in the order of their ids, each once; ""
                           // for others
  std::string run_id;      // of the run that wrote it; "": unknown
  std::string
      definition;  // the layer list (TOML) of a model that is a file's; "": a built-in model
  std::string data_digest;  // of the training samples and labels; "": unknown
  // What a sample is and how it is prepared, as JSON; "": unknown. Not checked here.
  std::string samples;
  // Policy-specific scalars ("averaging.steps_since_sync" ...), in order.
  std::vector<std::pair<std::string, std::int64_t>> counters;
  std::vector<SaveRecord> history;
  std::vector<NamedArray> arrays;  // model order within each section

  const NamedArray* find(Section section, const std::string& name) const;  // nullptr when absent
};

// Writes `path` atomically: temporary file in the same folder, space reserved, fsync, rename, fsync
// of the folder. Throws CannotCreateError or Error; then `path` is as it was before and no
// temporary file is left.
void save_checkpoint(const Checkpoint& checkpoint, const std::string& path);

// Validates everything (bounds, digests) before returning. Throws MissingFileError or DataError
// naming the file and the fault.
Checkpoint load_checkpoint(const std::string& path);
// The same checks, and throws the same, in a block of memory: the file is read once and nothing
// kept.
void check_checkpoint(const std::string& path);
// All but the arrays' data, which is not read and may be damaged: for listings and for choosing
// among files. Throws the same.
Checkpoint load_description(const std::string& path);
// What save_checkpoint() writes, in memory.
std::vector<std::byte> checkpoint_bytes(const Checkpoint& checkpoint);
// load_checkpoint() from memory, for a snapshot that another rank has. `name` stands for the file
// in messages.
Checkpoint parse_checkpoint(const std::vector<std::byte>& bytes, const std::string& name);
std::vector<std::byte> read_file(const std::string& path);

// Naming inside a run's folder: step-00000600.ckpt; `latest` and `best` hold such a name.
std::string checkpoint_file_name(std::int64_t global_step);
// Writes DIR/step-N.ckpt, then names it in `latest`, and with `best` in `best` too. Only when all
// that is durable does it delete the oldest snapshots beyond keep_last (0 = keep all), and only
// those that this run wrote (Checkpoint::run_id), that can be read, and that `best` does not name.
// Returns the path.
std::string save_to_directory(const Checkpoint& checkpoint, const std::string& directory,
                              int keep_last, bool best = false);
// The newest snapshot of a folder that loads: of the run `run_id`, or else of the one that wrote
// what `latest` names, by step number; then what `latest` names, and others. Returns "" when there
// is none at all; damaged ones, what an old `latest` names, and with `run_id` those of other runs,
// are skipped and reported through `skipped`. Searches again, a few times, where a run prunes
// meanwhile. Throws DataError when all that is there is damaged.
std::string find_newest_checkpoint(const std::string& directory, std::vector<std::string>* skipped,
                                   const std::string& run_id = "");
// Makes room: deletes what run `run_id` saved in the folder but the newest that loads and what
// `best` names. Returns how many snapshots. Throws as find_newest_checkpoint().
int delete_older_snapshots(const std::string& directory, const std::string& run_id);
// The snapshot that `best` names; "" when nothing does or it is gone. Throws Error when `best`
// cannot be read.
std::string find_best_checkpoint(const std::string& directory);
// Has `best` name this snapshot of the folder, if it does not. Throws as save_to_directory().
void name_best(const std::string& directory, std::int64_t step);
// The name of the snapshot of the highest step, which is not looked into; "" in a folder without
// snapshots, and where there is none.
std::string newest_checkpoint_name(const std::string& directory);
// The names of the snapshots of later steps than this. Throws MissingFileError.
std::vector<std::string> checkpoint_names_after(const std::string& directory, std::int64_t step);
// Throws CannotCreateError unless a file can be made in `directory` (created when missing).
void ensure_writable_directory(const std::string& directory);

}  // namespace io
