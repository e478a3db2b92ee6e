// The folder that a run owns: who may use it, and what is in it. Layout: docs/runs.md.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tools/options/table/resume.h"
#include "tools/run/folder/run_lock.h"
#include "tools/run/folder/run_record.h"

namespace tools {

struct RunFolderRequest {
  std::string folder;  // --save-dir; "auto": a new one, runs/MODEL-DATASET-NNN
  Resume resume = {};
  bool overwrite = false;  // an older run moves aside
  bool restarted = false;  // by a launcher: the run goes on, whatever else was asked
  bool take_over = false;  // likewise, from another rank of this job, which is out
  std::chrono::milliseconds stale = LockClaim{}.stale;  // as there
  std::string model = {}, dataset = {};                 // for "auto"
};

// On rank 0 alone, for as long as the training runs.
class RunFolder {
 public:
  // Takes the folder, made where it is missing, and its lock. Throws io::CannotCreateError, with
  // nothing changed: the folder holds a run that was not asked for (says which, and what to type),
  // another job is running in it, its run.json is none, it cannot be written. A run that goes on
  // waits for a job of another host that may have died; StoppedError where a signal ends that.
  explicit RunFolder(const RunFolderRequest& request);
  // A folder that this made, and in which no run began, is gone again.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  const std::string& id() const { return record_.id; }
  // Whether the run goes on that the folder held.
  bool continued() const { return continued_; }
  // Whether the run goes on that the folder held and that has no snapshot: from step 0.
  bool begun() const { return begun_; }
  // "moved the run of mlp on mnist to runs/a.old-1"; "" where nothing was moved.
  const std::string& notice() const { return notice_; }

  // run.json: the run as `record` has it, under this run's id, after its earlier starts.
  void begin(RunRecord record, const RunStart& start);
  const RunRecord& record() const { return record_; }
  // Nothing of this start was kept: run.json has again what the run was before, and the start.
  void take_back();
  // The run goes on from the snapshot of this step: newer ones move to DIR/given-up-N, so that they
  // are neither resumed nor pruned. Returns what to say of it; "" where there are none.
  std::string give_up_newer(std::int64_t step);

  // Before the folder is written to. Throws io::CannotCreateError where another job has taken it. A
  // folder that is gone is made again where its file system is there, and an empty one in its place
  // is taken; `notice` tells it. Returns why it must not be written to for now, "" where it may.
  // From one thread at a time.
  std::string check(const std::function<void(const std::string&)>& notice);
  // Throws as check() where the lock was found lost; cheap.
  void check_lock() const { lock_->check(); }

 private:
  void take(const RunFolderRequest& request);
  void remove_if_made();

  std::string path_, notice_;
  std::unique_ptr<RunLock> lock_;
  RunRecord record_;
  std::optional<RunRecord> before_;  // this start
  bool continued_ = false, begun_ = false, made_ = false, started_ = false;
};

// "mlp on mnist, started 2026-01-02T03:04:05Z, newest snapshot step-00000938.ckpt": the run that a
// folder holds; "" where it holds none. A folder without snapshots holds no run: nothing of it
// could be lost.
std::string run_in_folder(const std::string& folder);

}  // namespace tools
