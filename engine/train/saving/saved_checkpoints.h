// Remembers the newest checkpoints of a run, for a run that has to end and name the one to resume.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/train/saving/checkpoint_manager.h"

namespace engine {

class SavedCheckpoints {
 public:
  // `checkpoints` (null: nothing is saved) must outlive this. `resumed_from` is the checkpoint of
  // `step` that the run started with; "": none.
  SavedCheckpoints(CheckpointManager* checkpoints, std::string resumed_from, std::int64_t step)
      : checkpoints_(checkpoints), newest_{std::move(resumed_from), step} {}

  // Returns the write that has ended since the last call; never blocks, never throws.
  std::optional<CheckpointManager::Saved> take();
  // Waits for the last write and ignores its failure. Collective.
  void wait() noexcept;
  // Returns the newest checkpoint from which a step had a finite loss, where `last_good` is the
  // last step that had one: finite parameters alone do not prove it. "": none is known.
  std::string last_good(std::optional<std::int64_t> last_good_step) const;

 private:
  struct Checkpoint {
    std::string path;  // "": none
    std::int64_t step = -1;
  };

  CheckpointManager* const checkpoints_;
  Checkpoint newest_, second_newest_;  // on rank 0, and the one that the run was resumed from
};

}  // namespace engine
