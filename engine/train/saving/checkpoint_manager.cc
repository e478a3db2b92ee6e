// Implements saving and loading as collectives.
#include "engine/train/saving/checkpoint_manager.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <span>
#include <utility>

#include "backends/backend_error.h"
#include "engine/train/saving/shared_file.h"
#include "engine/train/saving/state_target.h"
#include "engine/train/saving/weights.h"
#include "io/checkpoint/checkpoint_directory.h"
#include "io/checkpoint/checkpoint_names.h"

namespace engine {
namespace {

// Keeps only the first save, which states where the run started, and the last ones, so that the
// header has a bounded length for a run of any length.
void append(io::SaveRecord record, std::vector<io::SaveRecord>& history) {
  constexpr std::size_t kMost = 64;
  history.push_back(std::move(record));
  if (history.size() > kMost)
    history.erase(history.begin() + 1, history.end() - static_cast<std::ptrdiff_t>(kMost - 1));
}

}  // namespace

CheckpointManager::CheckpointManager(backends::Communicator& communicator,
                                     const CheckpointManagerOptions& options,
                                     std::shared_ptr<CheckpointWriter> writer)
    : communicator_(communicator),
      options_(options),
      writer_(writer ? std::move(writer) : std::make_shared<CheckpointWriter>()) {
  if (enabled())
    run_on_root(
        communicator_, [&] { io::ensure_writable_directory(options_.directory); },
        options_.exit_code_of);
}

io::Checkpoint CheckpointManager::described() const {
  io::Checkpoint checkpoint = options_.description;
  checkpoint.history = history_;
  return checkpoint;
}

void CheckpointManager::save(TrainState& state, const SaveMode& mode) {
  require(enabled(), "save without a folder");
  finish();
  kept_.reset();
  StateCopy& copy = writer_->copy();
  copy.begin(described());
  capture(communicator_, state, copy);
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
      std::chrono::system_clock::now().time_since_epoch());
  append({state.progress.global_step, now.count(), communicator_.world_size(),
          options_.description.build},
         history_);
  copy.checkpoint().history = history_;
  if (!options_.background) {
    run_on_root(
        communicator_, [&] { writer_->write(write_options(mode), state.progress); },
        options_.exit_code_of);
  } else if (communicator_.rank() == 0) {
    writer_->begin(write_options(mode), state.progress);
  }
}

WriteOptions CheckpointManager::write_options(const SaveMode& mode) const {
  return {.directory = options_.directory,
          .run_id = options_.description.run_id,
          .keep_last = mode.keep_all ? 0 : options_.keep_last,
          .best = mode.best,
          .before_write = options_.before_write,
          .notice = options_.notice,
          .retry_pause = options_.retry_pause};
}

void CheckpointManager::copy_own(TrainState& state) {
  kept_.reset();
  writer_->copy().begin(described());
  capture_own(state, /*world_size=*/1, writer_->copy());
}

std::string CheckpointManager::path_of(std::int64_t step) const {
  return (std::filesystem::path(options_.directory) / io::checkpoint_file_name(step)).string();
}

bool CheckpointManager::takes_folder(std::int64_t step, const LoneSave& mode) {
  writer_->wait();
  if (communicator_.rank() == 0) {
    std::error_code unknown;
    return !std::filesystem::exists(path_of(step), unknown);
  }
  const std::int64_t last = std::min(mode.last_common.value_or(step - 1), step - 1);
  const auto is_newest = [&] {
    std::error_code unknown;  // another host may not see the folder
    return std::filesystem::is_directory(options_.directory, unknown) &&
           io::checkpoint_names_after(options_.directory, last).empty();
  };
  // The second time because a living rank 0 may have saved while this rank waited for the folder.
  return is_newest() && options_.take_folder && options_.take_folder() && is_newest();
}

bool CheckpointManager::save_alone(TrainState& state, const LoneSave& mode) {
  if (!takes_folder(state.progress.global_step, mode)) return false;
  copy_own(state);
  writer_->write(write_options({.best = mode.best, .keep_all = mode.keep_all}), state.progress);
  return true;
}

void CheckpointManager::keep(TrainState& state) {
  const bool can_save = communicator_.rank() == 0 || options_.take_folder;
  if (!can_save || writer_->is_writing()) return;
  copy_own(state);
  kept_ = state.progress;
}

std::optional<TrainProgress> CheckpointManager::save_kept(const LoneSave& mode) {
  if (!kept_ || !takes_folder(kept_->global_step, mode)) return std::nullopt;
  writer_->write(write_options({.keep_all = mode.keep_all}), *kept_);
  return kept_;
}

io::Checkpoint CheckpointManager::checkpoint_in_memory(const TrainState& state) const {
  StateCopy copy;
  copy.begin(described());
  capture_beside(state, communicator_.world_size(), copy);
  return copy.take();
}

std::optional<io::Checkpoint> CheckpointManager::share(const StateInMemory& own,
                                                       TrainState& state) {
  std::optional<io::Checkpoint> shared = share_state(communicator_, own, state);
  if (shared) history_ = shared->history;
  return shared;
}

void CheckpointManager::name_best(std::int64_t step) {
  run_on_root(
      communicator_, [&] { io::name_best(options_.directory, step); }, options_.exit_code_of);
}

void CheckpointManager::finish() {
  if (!options_.background) return;
  run_on_root(
      communicator_, [&] { writer_->finish(); }, options_.exit_code_of);
}

std::string CheckpointManager::save_rank_model(const TrainState& state) const {
  require(enabled(), "save without a folder");
  StateCopy copy;
  copy.begin(described());
  capture_model(state, communicator_.world_size(), copy);
  std::string path =
      options_.directory + "/final_model_rank_" + std::to_string(communicator_.rank()) + ".ckpt";
  io::save_checkpoint(copy.take(), path);
  return path;
}

void CheckpointManager::check(const io::Checkpoint& checkpoint, const std::string& path) const {
  if (!checkpoint.vocabulary.empty() && checkpoint.vocabulary != options_.description.vocabulary)
    throw io::DataError(path + ": its text has " + std::to_string(checkpoint.vocabulary.size()) +
                        " different characters, that of this run " +
                        std::to_string(options_.description.vocabulary.size()) +
                        ", or others: token ids would mean something else");
  if (options_.admit) options_.admit(checkpoint, path);
}

// Loads most of the file without extra memory. If the file turns out to be damaged, the state is
// unusable, but then the run ends anyway.
io::Checkpoint CheckpointManager::load_into(const io::ByteSource& file, TrainState& state) const {
  StateTarget target([&](const io::Checkpoint& description) { check(description, file.name()); });
  target.add(state.model);
  for (const Optimizer::State& s : state.optimizer.state())
    if (s.role != StateRole::kAverage && state.shares == nullptr)
      target.add(*s.buffer, std::string(s.name) + "/", io::Section::kOptimizer);
  const HostView view(state.home, Access::kWrite);
  return io::load_checkpoint(file, target);
}

// A bad file ends all ranks with the same error.
io::Checkpoint CheckpointManager::load_collectively(const io::ByteSource& file,
                                                    TrainState& state) const {
  io::Checkpoint checkpoint;
  std::exception_ptr failure;
  try {
    checkpoint = load_into(file, state);
  } catch (const backends::Error&) {
    throw;  // there are no other ranks
  } catch (...) {
    failure = std::current_exception();
  }
  const auto fail = [&] {
    if (failure) std::rethrow_exception(failure);
  };
  run_on_root(communicator_, fail, options_.exit_code_of);
  fail();
  return checkpoint;
}

std::string CheckpointManager::resume(const std::string& which, TrainState& state) {
  std::string path = which;
  std::unique_ptr<io::ByteSource> own_file;
  run_on_root(
      communicator_,
      [&] {
        writer_->wait();  // it may be the file to load
        std::error_code unknown;
        const bool own = which == "auto";
        if (own || std::filesystem::is_directory(which, unknown)) {
          std::vector<std::string> skipped;
          path = !own        ? io::find_checkpoint_to_continue(which, &skipped)
                 : enabled() ? io::find_checkpoint_to_continue(options_.directory, &skipped,
                                                               options_.description.run_id)
                             : "";
          for (const std::string& s : skipped)
            if (options_.notice) options_.notice("skipped a checkpoint: " + s);
          if (path.empty() && !own)
            throw io::MissingFileError("no checkpoint in " + which + " to resume from");
        }
        if (!path.empty()) own_file = io::open_bytes(path);
      },
      options_.exit_code_of);
  // With "auto" only rank 0 knows the path.
  broadcast_text(communicator_, path);
  if (path.empty()) return "";
  const io::Checkpoint checkpoint =
      load_collectively(SharedFile(communicator_, std::move(own_file), path), state);
  if (options_.place)
    for (const io::NamedArray& array : checkpoint.arrays) options_.place(array.device);
  restore(checkpoint, path, communicator_.rank(), communicator_.world_size(), state,
          communicator_.rank() == 0 ? options_.notice : std::function<void(const std::string&)>{});
  history_ = checkpoint.history;
  // The folder that it came from may be gone.
  if (options_.description.tokenizer.empty()) options_.description.tokenizer = checkpoint.tokenizer;
  return path;
}

std::vector<std::string> init_from(
    backends::Communicator& communicator, const std::string& path,
    const std::function<std::vector<io::NamedArray>(const std::string&)>& read,
    const std::function<int(const std::exception&)>& exit_code_of, ModelState& state,
    const std::function<bool(const std::string& name)>& optional,
    const std::vector<io::UnreadArray>& unread) {
  std::vector<std::string> left_out;
  run_on_root(
      communicator,
      [&] {
        const std::vector<io::NamedArray> arrays = read(path);
        left_out = import_state(arrays, path, /*exact=*/false, state, optional, unread);
      },
      exit_code_of);
  broadcast_state(communicator, state);
  return left_out;
}

}  // namespace engine
