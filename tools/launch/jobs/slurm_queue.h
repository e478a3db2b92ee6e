// Runs sbatch, squeue, scontrol and scancel. Each has a minute.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tools {

// All throw io::ConfigError if the program is missing or fails, and backends::Error if SLURM cannot
// be reached.

// Throws io::ConfigError if there is no sbatch.
void check_sbatch();

struct SlurmJob {
  std::string id;            // "12"; a task of an array: "12_3"
  std::string cluster = {};  // "": the one of this host
};

// Also throws backends::Error if sbatch prints no job's number. Prints warnings of sbatch.
SlurmJob submit_to_slurm(const std::string& script);
void cancel_in_slurm(const SlurmJob& job);

// Returns a line for each task of the job that is in the queue: "RUNNING on n[1-2] (None), 1:23 of
// 20:00"; none if the job has left it. Throws backends::Error also after `stops` has returned true.
std::vector<std::string> tasks_in_queue(
    const SlurmJob& job, const std::function<bool()>& stops = [] { return false; });

// The record of a job that SLURM keeps for some minutes after its end; nothing after that.
struct RememberedJob {
  std::string state, reason, exit_code, script;  // "FAILED", "NonZeroExitCode", "1:0", a path
  bool is_array = false;                         // an array of jobs, or one of its tasks
};
std::optional<RememberedJob> remembered_job(const SlurmJob& job);

}  // namespace tools
