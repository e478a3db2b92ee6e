// Runs sbatch, squeue, scontrol and scancel. Each has a minute.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tools {

// All throw io::ConfigError if the program is missing or fails, and backends::Error if SLURM cannot
// be reached.

// Throws io::ConfigError if there is no sbatch.
void check_sbatch();
std::string submit_to_slurm(const std::string& script);  // returns the job's id
void cancel_in_slurm(const std::string& job);

// Returns a line for each task of the job that is in the queue: "RUNNING on n[1-2] (None), 1:23 of
// 20:00"; none if the job has left it.
std::vector<std::string> tasks_in_queue(const std::string& job);

// The record of a job that SLURM keeps for some minutes after its end; nothing after that.
struct RememberedJob {
  std::string state, reason, exit_code, script;  // "FAILED", "NonZeroExitCode", "1:0", a path
  bool is_array = false;                         // an array of jobs, or one of its tasks
};
std::optional<RememberedJob> remembered_job(const std::string& job);

}  // namespace tools
