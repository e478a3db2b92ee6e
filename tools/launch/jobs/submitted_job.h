// A submitted job and the run that it trains: their files, state and output.
#pragma once

#include <string>
#include <vector>

namespace tools {

struct SubmittedJob {
  std::string id, folder;  // of an array's run: "12_3"
};

// Finds the newest job of a run's folder, or the run of a job, "12" or "12_3". Throws
// io::MissingFileError.
SubmittedJob find_job(const std::string& run_or_job);

// Returns lines about the job in the queue, its starts, and the progress of the run.
std::vector<std::string> status_lines(const SubmittedJob& job);

// Throws io::CannotCreateError if a job of the run is in the queue.
void check_no_job_of(const std::string& folder);

// Prints the job's output and its changes of state until it ends, and returns the exit code of the
// job, or of the signal that stops the following.
int follow_job(const SubmittedJob& job);

}  // namespace tools
