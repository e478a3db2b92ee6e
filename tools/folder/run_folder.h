// The folder that a run owns: its users and its contents. docs/runs.md has the layout.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "io/base/files/folder_guard.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/checkpoint_names.h"
#include "tools/folder/run_lock.h"
#include "tools/folder/run_record.h"
#include "tools/options/table/resume.h"

namespace tools {

struct RunFolderRequest {
  std::string folder;  // --save-dir; "auto": a new one, runs/MODEL-DATASET-NNN
  Resume resume = {};
  bool overwrite = false;     // an older run moves aside
  bool restarted = false;     // by a launcher: a run that it has begun continues
  std::string launch = {};    // the launcher's id, in the starts of run.json; "": it has begun it
  bool take_over = false;     // the run continues, from another rank of this job, which is out
  bool from_stopped = false;  // as in LockClaim
  std::chrono::milliseconds stale = LockClaim{}.stale;  // as there
  std::string model = {}, dataset = {};                 // for "auto"
};

// Exists only on rank 0, while the training runs.
class RunFolder {
 public:
  // Takes the folder, created if it is missing, and its lock. Throws io::CannotCreateError, with
  // nothing changed, if the folder contains a run that was not requested (names it, and what to
  // type), another job is running in it, it has an invalid run.json and no checkpoint, or it cannot
  // be written. A run that continues waits for a job on another host that may have died; throws
  // StoppedError if a signal ends that wait.
  explicit RunFolder(const RunFolderRequest& request);
  // Removes a folder that this object created, if no run has started in it.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  const std::string& id() const { return record_.id; }
  // Returns true if the run in the folder continues.
  bool continued() const { return continued_; }
  // Returns true if the run in the folder, which has no checkpoint, continues from step 0.
  bool begun() const { return begun_; }
  // Returns true if it is the run that this job has begun: it continues from its newest checkpoint,
  // whatever the command line says.
  bool is_of_this_job() const { return of_this_job_; }
  // Returns e.g. "moved the run of mlp on mnist to runs/a.old-1", or what is wrong with run.json;
  // "" if there is nothing to report.
  const std::string& notice() const { return notice_; }

  // Writes run.json: the run as in `record`, with this run's id, after its earlier starts. One that
  // cannot be used is renamed, not replaced.
  void begin(RunRecord record, const RunStart& start);
  const RunRecord& record() const { return record_; }
  // Called if nothing of this start was saved: restores the previous run in run.json, and keeps
  // only the entry of the start.
  void take_back();
  // The run continues from the checkpoint of this step, requested by name: moves newer ones to
  // DIR/given-up-N, so that they are neither resumed nor pruned. Returns a notice; "" if there are
  // none.
  std::string give_up_newer(std::int64_t step);
  // The run continues from the checkpoint of this step, whose best evaluation so far was at step
  // `best`: `latest` and `best` name no later ones. Called before give_up_newer(). Returns a notice
  // about `best`; "" if it stays.
  std::string name_earlier(std::int64_t step, std::optional<std::int64_t> best) const {
    const std::string done = io::name_earlier_checkpoints(path_, step, best);
    return done.empty() ? "" : path_ + ": " + done;
  }

  // Called before a write to the folder. Throws io::CannotCreateError if another job has taken it.
  // A missing folder is created again if its file system is there, and an empty one in its place is
  // taken; `notice` reports it. Returns why it must not be written for now, "" if it may be. One
  // thread at a time.
  std::string check(const std::function<void(const std::string&)>& notice);
  // Called after check(): writes run.json again if it has been deleted. Returns a notice; "" if it
  // is there.
  std::string restore_record() const;
  // Throws as check() does if the lock was lost; cheap.
  void check_lock() const { lock_->check(); }

 private:
  void take(const RunFolderRequest& request);
  void remove_if_made();
  void guard_folder();

  void read_record(bool has_checkpoints);
  void keep_damaged_record() const;
  void note_missing_checkpoint();

  std::string path_, notice_;
  std::string damaged_;  // the name that a run.json that cannot be used gets; "" if it is intact
  std::unique_ptr<RunLock> lock_;
  std::unique_ptr<io::FolderGuard> guard_;  // uses the lock
  RunRecord record_;
  std::optional<RunRecord> before_;  // this start
  bool continued_ = false, begun_ = false, made_ = false, started_ = false;
  bool of_this_job_ = false;
};

// Returns e.g. "mlp on mnist, started 2026-01-02T03:04:05Z, newest checkpoint step-00000938.ckpt":
// the run in a folder; "" if there is none. A folder without checkpoints contains no run, because
// nothing could be lost.
std::string run_in_folder(const std::string& folder);

}  // namespace tools
