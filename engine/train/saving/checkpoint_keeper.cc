// Collective save and load.
#include "engine/train/saving/checkpoint_keeper.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <span>
#include <thread>
#include <utility>

#include "backends/transport/single/single_communicator.h"
#include "engine/train/saving/weights.h"
#include "io/checkpoint/late_arrays.h"

namespace engine {
namespace {

// A run of any length has a header of bounded length: beyond the first save, which says where the
// run began, only the last ones are kept.
void append(io::SaveRecord record, std::vector<io::SaveRecord>& history) {
  constexpr std::size_t kMost = 64;
  history.push_back(std::move(record));
  if (history.size() > kMost)
    history.erase(history.begin() + 1, history.end() - static_cast<std::ptrdiff_t>(kMost - 1));
}

}  // namespace

CheckpointKeeper::CheckpointKeeper(backends::Communicator& communicator,
                                   const KeeperOptions& options)
    : communicator_(communicator), options_(options) {
  if (enabled())
    run_on_root(
        communicator_, [&] { io::ensure_writable_directory(options_.directory); },
        options_.exit_code_of);
}

io::Checkpoint CheckpointKeeper::described() const {
  io::Checkpoint checkpoint = options_.description;
  checkpoint.history = history_;
  return checkpoint;
}

void CheckpointKeeper::save(TrainState& state, const SaveMode& mode) {
  require(enabled(), "save without a folder");
  finish();
  copy_.begin(described());
  capture(communicator_, state, copy_);
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
      std::chrono::system_clock::now().time_since_epoch());
  append({state.progress.global_step, now.count(), communicator_.world_size(),
          options_.description.build},
         history_);
  copy_.checkpoint().history = history_;
  if (!options_.background) {
    run_on_root(
        communicator_,
        [&] {
          saved_ = {state.progress, write(mode)};
        },
        options_.exit_code_of);
  } else if (communicator_.rank() == 0) {
    pending_progress_ = state.progress;
    pending_ = std::async(std::launch::async, [this, mode] { return write(mode); });
  }
}

// A disk that is full, or a file system that is away for a moment, shall not cost the run.
std::string CheckpointKeeper::write(const SaveMode& mode) {
  constexpr int kTries = 4;
  auto pause = options_.retry_pause;
  for (int tries = 1;; ++tries, pause *= 2) {
    if (options_.before_write) options_.before_write();
    try {
      return io::save_to_directory(copy_.checkpoint(), options_.directory,
                                   mode.keep_all ? 0 : options_.keep_last, mode.best,
                                   [this](std::size_t array) { copy_.complete(array); });
    } catch (const io::Error& error) {
      if (tries == kTries) give_up(error);
      if (options_.notice)
        options_.notice("the snapshot of step " + std::to_string(copy_.checkpoint().global_step) +
                        " was not saved: " + error.what() + make_room() + "; trying again");
    }
    std::this_thread::sleep_for(pause);
  }
}

// The last word says what is left to go on from.
void CheckpointKeeper::give_up(const io::Error& error) const {
  std::string newest;
  try {
    newest = io::find_newest_checkpoint(options_.directory, nullptr, options_.description.run_id);
  } catch (const io::Error&) {
    newest.clear();
  }
  const std::string text =
      error.what() + (newest.empty() ? std::string("; there is no snapshot of this run")
                                     : "; the newest snapshot is " + newest);
  if (dynamic_cast<const io::CannotCreateError*>(&error) != nullptr)
    throw io::CannotCreateError(text);
  throw io::Error(text);
}

// What was done for a full file system, "" if it is not full or nothing could be done.
std::string CheckpointKeeper::make_room() {
  std::uintmax_t needed = 0;
  for (const io::NamedArray& array : copy_.checkpoint().arrays) needed += array.data.size();
  std::error_code unknown;
  const auto space = std::filesystem::space(options_.directory, unknown);
  if (unknown || space.available > needed || options_.keep_last == 0) return "";
  try {
    const int deleted = io::delete_older_snapshots(options_.directory, options_.description.run_id);
    if (deleted == 0) return "";
    return "; " + std::to_string(deleted) +
           (deleted == 1 ? " older snapshot" : " older snapshots") + " deleted to make room";
  } catch (const io::Error&) {
    return "";  // the error is told that made room necessary
  }
}

void CheckpointKeeper::save_alone(TrainState& state) {
  if (pending_.valid()) collect();
  copy_.begin(described());
  capture(*backends::make_single_communicator(), state, copy_);
  saved_ = {state.progress, write(SaveMode())};
}

io::Checkpoint CheckpointKeeper::image(const TrainState& state) const {
  StateCopy copy;
  copy.begin(described());
  capture_beside(state, communicator_.world_size(), copy);
  return copy.take();
}

std::optional<io::Checkpoint> CheckpointKeeper::share(const StateImage& own, TrainState& state) {
  std::optional<io::Checkpoint> shared = share_state(communicator_, own, state);
  if (shared) history_ = shared->history;
  return shared;
}

void CheckpointKeeper::name_best(std::int64_t step) {
  run_on_root(
      communicator_, [&] { io::name_best(options_.directory, step); }, options_.exit_code_of);
}

// Takes the outcome of the write in the background; waits for it.
void CheckpointKeeper::collect() noexcept {
  try {
    saved_ = {pending_progress_, pending_.get()};
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void CheckpointKeeper::finish() {
  if (!options_.background) return;
  run_on_root(
      communicator_,
      [&] {
        if (pending_.valid()) collect();
        if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
      },
      options_.exit_code_of);
}

std::optional<CheckpointKeeper::Saved> CheckpointKeeper::take_saved() {
  if (pending_.valid() && pending_.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
    collect();
  return std::exchange(saved_, std::nullopt);
}

std::string CheckpointKeeper::save_rank_model(const TrainState& state) const {
  require(enabled(), "save without a folder");
  StateCopy copy;
  copy.begin(described());
  capture_model(state, communicator_.world_size(), copy);
  std::string path =
      options_.directory + "/final_model_rank_" + std::to_string(communicator_.rank()) + ".ckpt";
  io::save_checkpoint(copy.take(), path);
  return path;
}

std::string CheckpointKeeper::resume(const std::string& which, TrainState& state) {
  std::string path = which;
  std::vector<std::byte> bytes;
  io::Checkpoint checkpoint;
  run_on_root(
      communicator_,
      [&] {
        std::error_code unknown;
        const bool own = which == "auto";
        if (own || std::filesystem::is_directory(which, unknown)) {
          std::vector<std::string> skipped;
          path = !own        ? io::find_newest_checkpoint(which, &skipped)
                 : enabled() ? io::find_newest_checkpoint(options_.directory, &skipped,
                                                          options_.description.run_id)
                             : "";
          for (const std::string& s : skipped)
            if (options_.notice) options_.notice("skipped a snapshot: " + s);
          if (path.empty() && !own)
            throw io::MissingFileError("no snapshot in " + which + " to resume from");
        }
        if (path.empty()) return;
        // Validated here, so that a bad file ends all ranks alike.
        if (communicator_.world_size() == 1) {
          checkpoint = io::load_checkpoint(path);
        } else {
          bytes = io::read_file(path);
          checkpoint = io::parse_checkpoint(bytes, path);
        }
      },
      options_.exit_code_of);
  // The path travels in front of the content: with "auto" only rank 0 knows it.
  broadcast_text(communicator_, path);
  if (path.empty()) return "";
  if (communicator_.world_size() > 1) broadcast_bytes(communicator_, bytes);
  if (communicator_.rank() != 0) checkpoint = io::parse_checkpoint(bytes, path);
  if (!checkpoint.vocabulary.empty() && checkpoint.vocabulary != options_.description.vocabulary)
    throw io::DataError(path + ": its text has " + std::to_string(checkpoint.vocabulary.size()) +
                        " different characters, that of this run " +
                        std::to_string(options_.description.vocabulary.size()) +
                        ", or others: token ids would mean something else");
  if (options_.admit) options_.admit(checkpoint, path);
  if (options_.place)
    for (const io::NamedArray& array : checkpoint.arrays) options_.place(array.device);
  restore(checkpoint, path, communicator_.rank(), communicator_.world_size(), state,
          communicator_.rank() == 0 ? options_.notice : std::function<void(const std::string&)>{});
  history_ = checkpoint.history;
  return path;
}

std::vector<std::string> init_from(
    backends::Communicator& communicator, const std::string& path,
    const std::function<std::vector<io::NamedArray>(const std::string&)>& read,
    const std::function<int(const std::exception&)>& exit_code_of, ModelState& state,
    const std::function<bool(const std::string& name)>& optional) {
  std::vector<std::string> left_out;
  run_on_root(
      communicator,
      [&] { left_out = import_state(read(path), path, /*exact=*/false, state, optional); },
      exit_code_of);
  broadcast_state(communicator, state);
  return left_out;
}

}  // namespace engine
