// A checkpoint of a run: named arrays with digests and device tags, plus plain metadata. Format:
// docs/checkpoint-format.md. checkpoint_file.cc writes files and reads descriptions,
// checkpoint_loader.cc loads arrays, checkpoint_format.h has what these share.
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

}  // namespace io
