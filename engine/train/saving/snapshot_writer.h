// A process's snapshots on their way to the disk.
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

// How one snapshot is written; as KeeperOptions and SaveMode have it.
struct WriteOptions {
  std::string directory, run_id;
  int keep_last = 3;
  bool best = false;
  std::function<std::string()> before_write;
  std::function<void(const std::string&)> notice;
  std::chrono::milliseconds retry_pause{500};
};

// A write in the background may last longer than the group of ranks that began it, and than all
// else of it but what the functions of its WriteOptions use. The destructor waits for it.
class SnapshotWriter {
 public:
  struct Saved {
    TrainProgress progress;
    std::string path;
  };

  // What is to be written; its memory is kept from one snapshot to the next. REQUIRES: no write is
  // under way.
  StateCopy& copy() { return copy_; }
  // Throws when it failed for good.
  void write(const WriteOptions& options, const TrainProgress& progress);
  // The same in a thread. REQUIRES: no write is under way.
  void begin(WriteOptions options, const TrainProgress& progress);
  // Waits for the write under way, if there is one.
  void wait() noexcept;
  // The same; throws, once, when a write in the background has failed.
  void finish();
  // The write that ended since the last call; never blocks, never throws.
  std::optional<Saved> take_saved() noexcept;

 private:
  std::string written(const WriteOptions& options);
  std::string make_room(const WriteOptions& options);

  StateCopy copy_;
  std::optional<Saved> saved_;
  std::string last_path_;  // of the last one that was saved; whoever writes has it
  TrainProgress pending_progress_;
  std::exception_ptr failure_;        // of a write in the background
  std::future<std::string> pending_;  // the path; last: its end waits for the thread
};

}  // namespace engine
