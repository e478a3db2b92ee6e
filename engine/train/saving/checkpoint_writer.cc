// Writes checkpoints, and handles file systems that fail.
#include "engine/train/saving/checkpoint_writer.h"

#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "io/base/machine/cpu_affinity.h"
#include "io/checkpoint/atomic_file.h"
#include "io/checkpoint/checkpoint_directory.h"
#include "io/checkpoint/checkpoint_names.h"
#include "io/checkpoint/late_arrays.h"

namespace engine {
namespace {

// Describes the checkpoints to resume from, for the final message. `last` is the checkpoint that
// this process saved last; "" if it saved none.
std::string what_is_left(const WriteOptions& options, const std::string& last) {
  const std::string saved = last.empty() ? "" : "; the last checkpoint saved is " + last;
  try {
    const std::string newest =
        io::find_newest_checkpoint(options.directory, nullptr, options.run_id);
    if (!newest.empty()) return "; the newest checkpoint is " + newest;
    return last.empty() ? "; there is no checkpoint of this run in " + options.directory
                        : saved + ", which is not there now: is its file system mounted?";
  } catch (const io::Error&) {
    std::error_code unknown;  // the folder cannot be read now
    const bool is_gone = !std::filesystem::exists(last, unknown) && !unknown;
    return last.empty() || !is_gone ? saved : saved + ", which is not there now";
  }
}

[[noreturn]] void give_up(const io::Error& error, const std::string& left) {
  const std::string text = error.what() + left;
  if (dynamic_cast<const io::CannotCreateError*>(&error) != nullptr)
    throw io::CannotCreateError(text);
  throw io::Error(text);
}

// Returns what was done about a full file system, or "" if it is not full or nothing could be done.
// The error alone shows that it is full: free bytes say nothing about quotas, inodes and blocks.
std::string make_room(const WriteOptions& options, const io::Error& error) {
  if (dynamic_cast<const io::NoSpaceError*>(&error) == nullptr || options.keep_last == 0) return "";
  try {
    const int deleted = io::delete_older_checkpoints(options.directory, options.run_id);
    if (deleted == 0) return "";
    return "; " + std::to_string(deleted) +
           (deleted == 1 ? " older checkpoint" : " older checkpoints") + " deleted to make room";
  } catch (const io::Error&) {
    return "";  // the original error, the full file system, is reported
  }
}

}  // namespace

void CheckpointWriter::write(const WriteOptions& options, const TrainProgress& progress) {
  saved_ = {progress, written(options)};
}

void CheckpointWriter::begin(WriteOptions options, const TrainProgress& progress) {
  pending_progress_ = progress;
  const auto notice = options.notice;
  const auto work = [this, options = std::move(options)] { return written(options); };
  const base::UnboundMoment moment;
  try {
    pending_ = std::async(std::launch::async, work);
  } catch (const std::system_error& error) {
    // Other ranks do not know of it and continue: failures are kept, as those of a thread.
    if (notice)
      notice("the checkpoint of step " + std::to_string(progress.global_step) +
             " is written before training continues: cannot start a thread: " + error.what());
    pending_ = std::async(std::launch::deferred, work);
    wait();
  }
}

void CheckpointWriter::wait() noexcept {
  if (!pending_.valid()) return;
  try {
    saved_ = {pending_progress_, pending_.get()};
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void CheckpointWriter::finish() {
  wait();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

std::optional<CheckpointWriter::Saved> CheckpointWriter::take_saved() noexcept {
  if (pending_.valid() && pending_.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
    wait();
  return std::exchange(saved_, std::nullopt);
}

// A file of an earlier start may be damaged, or belong to another run. One that this process has
// written is not read again.
void CheckpointWriter::keep_unknown_file(const WriteOptions& options) {
  const std::int64_t step = copy_.checkpoint().global_step;
  const auto path = std::filesystem::path(options.directory) / io::checkpoint_file_name(step);
  if (path == last_path_) return;
  const std::string kept = io::keep_replaced_file(options.directory, step, options.run_id);
  if (!kept.empty() && options.notice) options.notice(kept);
}

// A full disk, or a file system that is temporarily unavailable, must not end the run.
std::string CheckpointWriter::written(const WriteOptions& options) {
  constexpr int kTries = 4;
  auto pause = options.retry_pause;
  for (int tries = 1;; ++tries, pause *= 2) {
    const std::string away = options.before_write ? options.before_write() : "";
    try {
      if (!away.empty()) throw io::CannotCreateError(away);
      keep_unknown_file(options);
      last_path_ =
          io::save_to_directory(copy_.checkpoint(), options.directory, options.keep_last,
                                options.best, [this](std::size_t array) { copy_.complete(array); });
      return last_path_;
    } catch (const io::Error& error) {
      if (tries == kTries) give_up(error, what_is_left(options, last_path_));
      const std::string made = make_room(options, error);
      if (options.notice)
        options.notice("the checkpoint of step " + std::to_string(copy_.checkpoint().global_step) +
                       " was not saved: " + error.what() + made + "; trying again");
    }
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace engine
