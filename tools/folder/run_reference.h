// Finds the checkpoint of a run's folder for a command, and the run to be continued.
#pragma once

#include <filesystem>
#include <string>

#include "io/base/files/io_error.h"
#include "io/checkpoint/checkpoint.h"
#include "tools/options/table/option_table.h"

namespace tools {

enum class CheckpointChoice { kBest, kNewest };

// Returns the checkpoint that `path` refers to: a file or a folder of Hugging Face itself; for a
// run's folder the one that `best` names if that is wanted, else the newest that loads. Throws
// io::MissingFileError for a folder without checkpoints, and if the one that `best` names does not
// exist.
std::string find_checkpoint(const std::string& path, CheckpointChoice wanted);

// Returns the result of `read` for the checkpoint that `path` refers to; `file`: already chosen by
// find_checkpoint(). A running run may delete it before it is opened: then it is chosen again, a
// few times. Throws as find_checkpoint() and `read` do.
template <typename Read>
auto read_checkpoint(const std::string& path, CheckpointChoice wanted, const Read& read,
                     std::string file = "") {
  constexpr int kChoices = 10;
  for (int choice = 1;; ++choice) {
    if (file.empty()) file = find_checkpoint(path, wanted);
    try {
      return read(file);
    } catch (const io::MissingFileError&) {
      std::error_code unknown;
      if (choice == kChoices || file == path || std::filesystem::exists(file, unknown)) throw;
    }
    file.clear();
  }
}

// Returns e.g. "runs/a: its best checkpoint, step-00000938.ckpt" if `file` is the choice of
// find_checkpoint() in a folder; "" if it is `path` itself.
std::string checkpoint_choice_text(const std::string& path, CheckpointChoice wanted,
                                   const std::string& file);

// Returns the options of the run that wrote the checkpoint, which `path` names in errors. Throws as
// apply_config_text() does.
ConfigValues options_in(const io::Checkpoint& checkpoint, const std::string& path);
// Returns true if `engine import` wrote it.
bool is_import(const io::Checkpoint& checkpoint);
// Throws io::ConfigError for a checkpoint of `engine import`, which belongs to no run. `path` names
// it.
void refuse_import(const io::Checkpoint& checkpoint, const std::string& path);

// `--resume DIR` alone continues the run in DIR: options that neither the command line nor the
// environment nor a file has set come from DIR/run.json, --save-dir is DIR, and --resume is auto.
// `--resume FILE.ckpt` without a model or data set takes missing options from the checkpoint, and
// continues in its folder if that belongs to its run. Call it before apply_defaults(). For a folder
// without a run.json that can be used the newest checkpoint is used. The default lr and weight
// decay of an optimizer are not kept with another one. Returns the layer list of the run's model if
// that came from a file, else "". Throws io::ConfigError if DIR contains no run; also throws as
// reading the files does.
std::string take_resumed_run(ConfigValues& values);

}  // namespace tools
