// Saves and loads checkpoints as collectives: only rank 0 accesses files, and all ranks learn the
// outcome.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/train/replicas/replica_sync.h"
#include "engine/train/saving/checkpoint_writer.h"
#include "engine/train/saving/shared_state.h"
#include "engine/train/saving/state_copy.h"
#include "engine/train/saving/train_state.h"
#include "io/checkpoint/array_source.h"

namespace engine {

struct CheckpointManagerOptions {
  std::string directory;       // "" = nothing is saved
  int keep_last = 3;           // 0 = all
  bool background = false;     // writes while training continues; see save()
  io::Checkpoint description;  // model, dataset, config, build: copied into every checkpoint
  std::function<int(const std::exception&)> exit_code_of;  // for RemoteError
  // Called on all ranks with the checkpoint that resume() is about to load; throws if this run must
  // not continue from it. May be empty.
  std::function<void(const io::Checkpoint&, const std::string& path)> admit;
  // Called on rank 0 (with `background` in the writing thread) before each attempt to write. Throws
  // if this run must not write any more. Creates the folder if necessary, and returns why the
  // folder cannot be written to at present (the attempt has then failed), or "". May be empty.
  std::function<std::string()> before_write = {};
  // Called on a rank other than 0 that is about to save alone: takes the folder from a rank 0 that
  // is gone. Returns false if this rank must not write to it. Empty: only rank 0 may.
  std::function<bool()> take_folder = {};
  // Called with the device tag of each array that resume() is about to load; throws if the array
  // cannot be placed. May be empty.
  std::function<void(const std::string&)> place;
  std::function<void(const std::string&)> notice;  // receives one line for the user; may be empty;
                                                   // with `background` called from any thread
  // The delay before a failed write is retried; it doubles for each retry.
  std::chrono::milliseconds retry_pause{500};
};

// A save of one rank without the others.
struct LoneSave {
  // Another rank than 0 saves nothing if the folder has a checkpoint of a later step than this,
  // which a living rank 0 has saved alone. None: of this rank's step or a later one.
  std::optional<std::int64_t> last_common = {};
  bool best = false, keep_all = false;  // see CheckpointManager::SaveMode
};

class CheckpointManager {
 public:
  // Collective: rank 0 checks that the folder is writable before any work is done. `writer` (null:
  // a new one) may still be writing a checkpoint of an earlier group. Throws io::CannotCreateError.
  CheckpointManager(backends::Communicator& communicator, const CheckpointManagerOptions& options,
                    std::shared_ptr<CheckpointWriter> writer = nullptr);

  bool enabled() const { return !options_.directory.empty(); }
  // A checkpoint that has been written, with `background` by a thread of rank 0.
  using Saved = CheckpointWriter::Saved;

  struct SaveMode {
    bool best = false;      // the folder's `best` names it: it is not pruned until another one is
                            // best
    bool keep_all = false;  // keeps all earlier checkpoints, regardless of keep_last
  };
  // Collective: copies the state (rank 0 keeps the memory for the next copy); then writes it, or
  // with `background` lets a thread write it, after the previous write has ended. A failed write is
  // retried three times; if the file system is full, this run's older checkpoints except the newest
  // and the best are deleted first. Throws if the previous write or (without `background`) this
  // write failed. REQUIRES: enabled().
  void save(TrainState& state, const SaveMode& mode);
  void save(TrainState& state) { save(state, SaveMode()); }
  // Not collective, for a rank that cannot wait for the others: saves its own state, after the
  // last write, as a run of one rank. State that only other ranks have (their running statistics,
  // their part of the averaging) is not included, so an existing checkpoint of the step stays.
  // Another rank than 0 first takes the folder (CheckpointManagerOptions::take_folder). Returns
  // true if a checkpoint was written.
  bool save_alone(TrainState& state, const LoneSave& mode = {});
  // Not collective: copies what save_alone() would save now, for save_kept(). The copy uses the
  // memory of save()'s; nothing is copied while a thread writes that, or if this rank cannot save
  // alone.
  void keep(TrainState& state);
  // As save_alone(), with the state of the last keep(). Returns its progress; none if nothing was
  // kept since the last save(), or the step has a checkpoint.
  std::optional<TrainProgress> save_kept(const LoneSave& mode);
  // Returns the path of the checkpoint of a step.
  std::string path_of(std::int64_t step) const;
  // Passes a line to CheckpointManagerOptions::notice.
  void notify(const std::string& line) const {
    if (options_.notice) options_.notice(line);
  }
  // Returns what this replica would resume from, in addition to the state that stays in its model
  // and optimizer; not collective. Nothing is written.
  io::Checkpoint checkpoint_in_memory(const TrainState& state) const;
  // Collective: like share_state(), with the run's history.
  std::optional<io::Checkpoint> share(const StateInMemory& own, TrainState& state);
  // Collective: lets the folder's `best` name the checkpoint of this step, which must exist.
  void name_best(std::int64_t step);
  // Collective: waits for the last write; throws if it failed. Does nothing without `background`.
  void finish();
  // Returns the write that ended since the last call, on rank 0; never blocks, never throws (save()
  // and finish() report failures).
  std::optional<Saved> take_saved() { return writer_->take_saved(); }
  // Saves this rank's own model as DIR/final_model_rank_R.ckpt, only parameters and buffers. Each
  // rank writes. REQUIRES: enabled().
  std::string save_rank_model(const TrainState& state) const;

  // Collective. `which` is a checkpoint, a folder (its newest checkpoint that loads), or "auto"
  // (the newest of this run in the run's own folder; starts over if there is none). Returns the
  // file resumed from, "": starts over.
  std::string resume(const std::string& which, TrainState& state);

 private:
  io::Checkpoint described() const;
  // Throws if, according to its description, this run must not continue from the checkpoint.
  void check(const io::Checkpoint& checkpoint, const std::string& path) const;
  // Returns the input of restore(); the arrays of the model and the optimizer are already in the
  // state.
  io::Checkpoint load_into(const io::ByteSource& file, TrainState& state) const;
  io::Checkpoint load_collectively(const io::ByteSource& file, TrainState& state) const;
  WriteOptions write_options(const SaveMode& mode) const;
  void copy_own(TrainState& state);
  // Waits for the last write. Returns true if this rank may write its checkpoint of a step alone.
  bool takes_folder(std::int64_t step, const LoneSave& mode);

  backends::Communicator& communicator_;
  CheckpointManagerOptions options_;
  std::vector<io::SaveRecord> history_;       // the run's first save and its last ones
  std::shared_ptr<CheckpointWriter> writer_;  // used on rank 0, and on a rank that saves alone
  std::optional<TrainProgress> kept_;         // set while the writer's copy is that of keep()
};

// Collective: rank 0 reads and validates a weights file (.ckpt or .safetensors through `read`), all
// ranks import it. `read` may fill `unread`. On rank 0, returns what was omitted, as import_state()
// does.
std::vector<std::string> init_from(
    backends::Communicator& communicator, const std::string& path,
    const std::function<std::vector<io::NamedArray>(const std::string&)>& read,
    const std::function<int(const std::exception&)>& exit_code_of, ModelState& state,
    const std::function<bool(const std::string& name)>& optional = {},
    const std::vector<io::UnreadArray>& unread = {});

}  // namespace engine
