// Saving and loading as collectives: rank 0 alone touches files, and all ranks learn how it went.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/train/replicas/replica_sync.h"
#include "engine/train/saving/shared_state.h"
#include "engine/train/saving/snapshot_writer.h"
#include "engine/train/saving/state_copy.h"
#include "engine/train/saving/train_state.h"
#include "io/checkpoint/array_source.h"

namespace engine {

struct KeeperOptions {
  std::string directory;       // "" = nothing is kept
  int keep_last = 3;           // 0 = all
  bool background = false;     // write while the training goes on; see save()
  io::Checkpoint description;  // model, dataset, config, build: copied into every snapshot
  std::function<int(const std::exception&)> exit_code_of;  // for RemoteError
  // Told the snapshot that resume() is about to load, on all ranks alike; throws where this run
  // must not go on from it. May be empty.
  std::function<void(const io::Checkpoint&, const std::string& path)> admit;
  // On rank 0 (with `background` in the thread that writes), before each attempt to write: throws
  // where this run must not write any more, sees to it that the folder is there, and returns why it
  // must not be written to for now (the attempt has failed), or "". May be empty.
  std::function<std::string()> before_write = {};
  // Told the device tag of each array that resume() is about to load; throws where the array cannot
  // go. May be empty.
  std::function<void(const std::string&)> place;
  std::function<void(const std::string&)> notice;  // one line for the user; may be empty; with
                                                   // `background` from any thread
  // Before a failed write is tried again; doubles from one to the next.
  std::chrono::milliseconds retry_pause{500};
};

class CheckpointManager {
 public:
  // Collective: rank 0 makes sure that the folder can be written, before any work is done. `writer`
  // (null: a new one) may still be writing what a keeper of an earlier group has saved. Throws
  // io::CannotCreateError.
  CheckpointManager(backends::Communicator& communicator, const KeeperOptions& options,
                    std::shared_ptr<SnapshotWriter> writer = nullptr);

  bool enabled() const { return !options_.directory.empty(); }
  // What has been written, or with `background` what a thread of rank 0 has finished writing.
  using Saved = SnapshotWriter::Saved;

  struct SaveMode {
    bool best = false;      // the folder's `best` names it: not pruned until another one is best
    bool keep_all = false;  // earlier snapshots stay, however many they are
  };
  // Collective: takes a copy of the state (rank 0 keeps its memory for the next one); then writes
  // it, or with `background` has it written by a thread, after the write before has ended. A write
  // that fails is tried three times more, where the file system is full after this run's older
  // snapshots but the newest and the best have been deleted. Throws when that or (without
  // `background`) this write failed. REQUIRES: enabled().
  void save(TrainState& state, const SaveMode& mode);
  void save(TrainState& state) { save(state, SaveMode()); }
  // Not collective, for rank 0 when the others cannot be waited for: saves what it has, after the
  // last write, as a training of one rank. What only others know (their running statistics, their
  // part of the averaging) is not in it.
  void save_alone(TrainState& state);
  // What this replica would go on from, beside what stays in its model and optimizer; not
  // collective. Nothing is written.
  io::Checkpoint image(const TrainState& state) const;
  // Collective: as share_state(), with the run's history.
  std::optional<io::Checkpoint> share(const StateImage& own, TrainState& state);
  // Collective: the folder's `best` names the snapshot of this step, which is there.
  void name_best(std::int64_t step);
  // Collective: waits for the last write; throws when it failed. Nothing to do without
  // `background`.
  void finish();
  // The write that ended since the last call, on rank 0; never blocks, never throws (a failure is
  // for save() and finish()).
  std::optional<Saved> take_saved() { return writer_->take_saved(); }
  // This rank's own model as DIR/final_model_rank_R.ckpt, parameters and buffers only. Each rank
  // writes. REQUIRES: enabled().
  std::string save_rank_model(const TrainState& state) const;

  // Collective. `which`: a snapshot, a folder (its newest snapshot that loads), or "auto" (the
  // newest of this run in the run's own folder; a fresh start when there is none). Returns the file
  // resumed from, "" for a fresh start.
  std::string resume(const std::string& which, TrainState& state);

 private:
  io::Checkpoint described() const;
  // Whether this run may go on from it, by its description. Throws.
  void check(const io::Checkpoint& checkpoint, const std::string& path) const;
  // What restore() needs; the model's and the optimizer's arrays are in the state already.
  io::Checkpoint load_into(const io::ByteSource& file, TrainState& state) const;
  io::Checkpoint load_together(const io::ByteSource& file, TrainState& state) const;
  WriteOptions write_options(const SaveMode& mode) const;

  backends::Communicator& communicator_;
  KeeperOptions options_;
  std::vector<io::SaveRecord> history_;     // the run's first save and its last ones
  std::shared_ptr<SnapshotWriter> writer_;  // of use on rank 0
};

// Collective: rank 0 reads and validates a weights file (.ckpt or .safetensors through `read`), all
// ranks import it. `read` may fill `unread`. Returns, on rank 0, what was left out, as
// import_state() does.
std::vector<std::string> init_from(
    backends::Communicator& communicator, const std::string& path,
    const std::function<std::vector<io::NamedArray>(const std::string&)>& read,
    const std::function<int(const std::exception&)>& exit_code_of, ModelState& state,
    const std::function<bool(const std::string& name)>& optional = {},
    const std::vector<io::UnreadArray>& unread = {});

}  // namespace engine
