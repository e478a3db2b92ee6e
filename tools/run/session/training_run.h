// The run of a training: its folder, the checkpoint that it continues from, and its record.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/group.h"
#include "tools/folder/run_comparison.h"
#include "tools/folder/run_folder.h"
#include "tools/run/session/train_session.h"

namespace tools {

// The part of a run that a process keeps when the ranks of its group change.
struct KeptRun {
  bool under_way = false;             // other ranks, or this one, have started it in this job
  std::shared_ptr<RunFolder> folder;  // on the rank that was rank 0
  std::string path, id;               // path: of the folder, which does not change; id: of the run
};

class TrainingRun {
 public:
  // Collective over `control`: rank 0 takes the folder, and all ranks receive its name and the
  // run's id. `command`: as typed, for the record. With `kept` (null: the group is the only one)
  // the run that this process has kept continues, and is stored there again. Throws as RunFolder
  // does, on all ranks, and io::ConfigError if the checkpoint to be resumed belongs to a different
  // experiment.
  TrainingRun(const RunConfig& config, std::string command, const backends::Group& group,
              backends::Communicator& control, KeptRun* kept = nullptr);
  ~TrainingRun();
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;

  // Returns the options from the configuration, with the run's folder and id. A checkpoint that the
  // session resumes is compared with the configuration: changes that make a different experiment
  // throw io::ConfigError, other changes are reported in one line. The run outlives the session.
  SessionOptions session_options();

  // On rank 0, when the session has its first state: writes run.json. Does nothing without a
  // folder.
  void begin(const TrainSession& session, std::int64_t step);

  // On rank 0, if the training has diverged before anything was saved: run.json keeps the start,
  // but not its options.
  void take_back() noexcept;
  // On rank 0: throws io::CannotCreateError if another job has taken the folder. Cheap.
  void check_folder() const {
    if (folder_) folder_->check_lock();
  }

  const std::string& folder() const { return folder_path_; }  // "": nothing is saved
  const RunRecord& record() const { return record_; }         // on rank 0, after begin()

 private:
  bool allows(const char* change) const;
  void take_folder();
  bool take_lost_folder();
  void check_checkpoint() const;
  std::vector<OptionChange> checked_changes(const io::Checkpoint& checkpoint,
                                            const std::string& path) const;
  std::string data_difference(const io::Checkpoint& checkpoint, const ConfigValues& saved,
                              std::int64_t samples) const;
  void admit(const io::Checkpoint& checkpoint, const std::string& path, const DataSummary& data);
  void report_changes(const std::vector<OptionChange>& changes);
  std::string data_change(const ConfigValues& saved, const std::string& digest,
                          const DataSummary& data) const;
  std::string test_data_change(std::int64_t samples) const;
  void leave_later_steps(const std::string& resumed_from, std::int64_t step);

  const RunConfig& config_;
  const ConfigValues kept_;
  const std::string command_;
  const backends::Group& group_;
  KeptRun* const kept_run_;  // or null
  // On rank 0, or on rank 1 after take_lost_folder(); a checkpoint that is being written needs it.
  std::shared_ptr<RunFolder> folder_;
  std::string folder_path_, id_;
  Resume resume_;
  bool recorded_ = false;  // this process has begun the run, with another group
  std::vector<std::string> changed_;
  RunRecord record_;
};

}  // namespace tools
