// A training run as a job of a scheduler.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tools {

enum class Scheduler { kSlurm, kPbs, kLsf, kSge };

// 0 and "": not requested.
struct JobResources {
  int nodes = 1, max_nodes = 1;  // max_nodes: for elastic jobs
  int tasks_per_node = 1;
  int gpus_per_node = 0, cpus_per_task = 0;
  std::string gpu_type = {};  // "a100"
  std::string memory = {};    // per node, "16G"; "0": all of the node
  std::int64_t seconds = 0;   // time limit
  bool is_unlimited = false;  // requests no time limit
};

// Placement in the queue.
struct JobPlace {
  std::string name, partition, account, qos;
};

struct JobArray {
  std::string spec = {};  // "0-4%2"; "": no array
  std::vector<std::int64_t> tasks = {};
};

struct JobRequest {
  Scheduler scheduler = Scheduler::kSlurm;
  JobResources resources;
  JobPlace place;
  JobArray array;
  std::string signal = "USR1";                      // announces the time limit
  int signal_before = 120;                          // seconds
  std::vector<std::string> sbatch = {}, srun = {};  // further options, "mail-type=END"
  std::vector<std::string> setup = {};              // lines of shell, before training
  std::string program;                              // shell words that start this program
  std::string directory, folder;                    // absolute; %a: the number of an array's task
  std::vector<std::string> train;                   // the arguments of `engine train`
  bool elastic = false;
};

// Parses a time limit as sbatch does: "30" (minutes), "30:00", "2:00:00", "1-12" (days-hours),
// "1-12:30", "1-12:30:00". Returns seconds; 0 for no limit ("UNLIMITED", "INFINITE", "0"). Throws
// io::ConfigError.
std::int64_t parse_time_limit(const std::string& text);

// Parses the indices of an array, "0-4", "1-5:2,9" or "0-99%10", at most 10,000 of them. Throws
// io::ConfigError.
JobArray parse_job_array(const std::string& text);

// Returns the memory in MiB, as sbatch reads it: "16G", "16GB", "800m", "512K", "16384" (MiB), "0"
// (all of the node). Throws io::ConfigError.
std::int64_t parse_memory(const std::string& text);

// Returns the parts between each %a.
std::vector<std::string> split_at_task(const std::string& text);
// Replaces each %a of an array's text by the number of a task.
std::string of_task(const std::string& text, std::int64_t task);
// Returns the folder of the run, or those of an array's runs.
std::vector<std::string> job_folders(const JobRequest& request);

}  // namespace tools
