// A training whose ranks, threads of this process, come and go.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/training/session_runner.h"
#include "tools/run/session/train_session.h"

namespace changing_ranks {

// The training, one group after the other.
class Job {
 public:
  Job(const session_runner::Options& options, int max_ranks, bool batch_scales = false);

  // What stands before each checkpoint that is written.
  void before_write(std::function<void()> act) { before_write_ = std::move(act); }
  // Ranks without memory come in behind those that are there.
  void join(int count);
  // After `step`, or the first one that this group does, rank `who` dies while the others go on
  // into the next step.
  void until_death(int who, std::int64_t step);
  // Rank `who` dies instead of its `call`-th collective after that step, on any communicator.
  // False: the job ended before.
  bool until_death_in_call(int who, std::int64_t step, int call);
  // Some step from `step` on is the last one of this group; false: that came too late.
  bool until_pause(std::int64_t step);
  // The group fails for a reason of its own, and all ranks are still there; the steps that each
  // has done.
  std::vector<std::int64_t> until_failure();
  std::vector<session_runner::RankResult> to_the_end();
  // What a rank has kept of the group before, and with what each rank has begun in the last one.
  const tools::RetainedState& kept_by(int rank) const {
    return *ranks_.at(static_cast<std::size_t>(rank));
  }
  tools::RetainedState& kept_by(int rank) { return *ranks_.at(static_cast<std::size_t>(rank)); }
  const std::vector<io::Checkpoint>& beginnings() const { return beginnings_; }
  int world_size() const { return static_cast<int>(ranks_.size()); }
  const std::string& scale_line() const { return scale_line_; }  // of the last group

 private:
  void run(const std::function<void(int rank, std::int64_t step)>& act);

  tools::RunConfig config_;
  std::vector<std::unique_ptr<tools::RetainedState>> ranks_;
  std::vector<session_runner::RankResult> results_;
  std::vector<io::Checkpoint> beginnings_;
  std::int64_t pause_at_ = -1;
  bool paused_ = false;
  std::function<void()> before_write_;
  std::function<void(int rank)> before_call_;
  std::string scale_line_;
};

// One of `ranks` ranks dies after step 3 and joins again after step 7; all take 12 steps and end
// with equal parameters.
void expect_equal_after_changes(const session_runner::Options& options, int ranks);

}  // namespace changing_ranks
