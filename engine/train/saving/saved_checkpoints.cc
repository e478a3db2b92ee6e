// Tracks the writes of the checkpoint manager.
#include "engine/train/saving/saved_checkpoints.h"

#include <exception>
#include <filesystem>
#include <system_error>
#include <utility>

namespace engine {

std::optional<CheckpointManager::Saved> SavedCheckpoints::take() {
  if (checkpoints_ == nullptr) return std::nullopt;
  std::optional<CheckpointManager::Saved> saved = checkpoints_->take_saved();
  if (saved) second_newest_ = std::exchange(newest_, {saved->path, saved->progress.global_step});
  return saved;
}

void SavedCheckpoints::wait() noexcept {
  try {
    if (checkpoints_ != nullptr) checkpoints_->finish();
  } catch (const std::exception&) {
    return;  // the run ends for another reason
  }
}

std::string SavedCheckpoints::last_good(std::optional<std::int64_t> last_good_step) const {
  const bool older = last_good_step && newest_.step >= *last_good_step;
  std::error_code unknown;
  return older && std::filesystem::exists(second_newest_.path, unknown) ? second_newest_.path
                                                                        : newest_.path;
}

}  // namespace engine
