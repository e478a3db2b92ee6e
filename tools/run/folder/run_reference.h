// What a run's folder stands for where a command takes a snapshot, and a run that goes on.
#pragma once

#include <filesystem>
#include <string>

#include "io/base/files/io_error.h"
#include "io/checkpoint/checkpoint.h"
#include "tools/options/table/option_table.h"

namespace tools {

enum class Snapshot { kBest, kNewest };

// The snapshot that `path` stands for: a file itself; of a folder the one that `best` names if that
// is wanted and there, else the newest that loads. Throws io::MissingFileError: a folder without
// snapshots.
std::string snapshot_of(const std::string& path, Snapshot wanted);

// What `read` makes of the snapshot that `path` stands for; `file`: snapshot_of() has taken this
// one already. A run that goes on may delete it before it is open: then it is chosen again, a few
// times. Throws what snapshot_of() and `read` throw.
template <typename Read>
auto read_snapshot(const std::string& path, Snapshot wanted, const Read& read,
                   std::string file = "") {
  constexpr int kChoices = 10;
  for (int choice = 1;; ++choice) {
    if (file.empty()) file = snapshot_of(path, wanted);
    try {
      return read(file);
    } catch (const io::MissingFileError&) {
      std::error_code unknown;
      if (choice == kChoices || file == path || std::filesystem::exists(file, unknown)) throw;
    }
    file.clear();
  }
}

// "runs/a: its best snapshot, step-00000938.ckpt" where `file` is what snapshot_of() took of a
// folder; "" where it is `path` itself.
std::string taken_snapshot(const std::string& path, Snapshot wanted, const std::string& file);

// Whether `engine import` wrote it.
bool is_import(const io::Checkpoint& snapshot);
// Throws io::ConfigError for what `engine import` wrote: it is not a run's. `path` stands for it.
void refuse_import(const io::Checkpoint& snapshot, const std::string& path);

// `--resume DIR` alone goes on with the run in DIR: what neither the command line nor the
// environment nor a file has set comes from DIR/run.json, --save-dir is DIR, and --resume is auto.
// `--resume FILE.ckpt` without a model or data set takes what is missing from the snapshot, and
// goes on in the folder where that lies if it is its run's. Call it before apply_defaults(). A
// folder without run.json is taken by its newest snapshot. The lr and weight decay that an
// optimizer had by default are not kept with another one. Returns the layer list of the run's model
// where that came from a file, else "". Throws io::ConfigError: DIR holds no run; and what reading
// the files throws.
std::string take_resumed_run(ConfigValues& values);

}  // namespace tools
