// Writes the checkpoints of a process to the disk.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <optional>
#include <string>

#include "engine/train/saving/state_copy.h"
#include "engine/train/saving/train_progress.h"
#include "io/base/files/io_error.h"

namespace engine {

// The options of one write; see CheckpointManagerOptions and SaveMode.
struct WriteOptions {
  std::string directory, run_id;
  int keep_last = 3;
  bool best = false;
  std::function<std::string()> before_write;
  std::function<void(const std::string&)> notice;
  std::chrono::milliseconds retry_pause{500};
};

// A write in the background may outlive the group of ranks that started it, and everything else of
// it except what the functions of its WriteOptions use. The destructor waits for it.
class CheckpointWriter {
 public:
  struct Saved {
    TrainProgress progress;
    std::string path;
  };

  // The copy to be written; its memory is reused from one checkpoint to the next. REQUIRES: no
  // write is in progress.
  StateCopy& copy() { return copy_; }
  // Throws if the write failed permanently.
  void write(const WriteOptions& options, const TrainProgress& progress);
  // The same in a thread, or at once, with a notice, if none can be started. Does not throw what
  // the write throws. REQUIRES: no write is in progress.
  void begin(WriteOptions options, const TrainProgress& progress);
  // Returns true while a thread writes, and so reads the copy.
  bool is_writing() const {
    return pending_.valid() &&
           pending_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  }
  // Waits for the write in progress, if there is one.
  void wait() noexcept;
  // The same; throws, once, if a write in the background has failed.
  void finish();
  // Returns the write that ended since the last call; never blocks, never throws.
  std::optional<Saved> take_saved() noexcept;

 private:
  std::string written(const WriteOptions& options);
  void keep_unknown_file(const WriteOptions& options);

  StateCopy copy_;
  std::optional<Saved> saved_;
  std::string last_path_;  // path of the last saved one; accessed by the thread that writes
  TrainProgress pending_progress_;
  std::exception_ptr failure_;        // exception of a background write
  std::future<std::string> pending_;  // the path; declared last: its destructor waits for the
                                      // thread
};

}  // namespace engine
