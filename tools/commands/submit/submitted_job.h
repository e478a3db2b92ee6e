// A submitted job and the run that it trains: their files, state and output.
#pragma once

#include <string>
#include <vector>

#include "tools/launch/jobs/slurm_queue.h"

namespace tools {

struct SubmittedJob : SlurmJob {
  std::string folder;
};

// Finds the newest job of a run's folder, or the run of a job, "12" or "12_3". Throws
// io::MissingFileError.
SubmittedJob find_job(const std::string& run_or_job);

// Returns lines about the job in the queue, its starts, and the progress of the run.
std::vector<std::string> status_lines(const SubmittedJob& job);

// Notes in the run's folder that the job was submitted: its state is known from now on, also before
// it starts. Throws io::CannotCreateError.
void note_job(const SubmittedJob& job);

// Cancels the job, unless it has ended. Returns a line about it.
std::string cancel_job(const SubmittedJob& job);

// Throws io::CannotCreateError if a job of the run is in the queue.
void check_no_job_of(const std::string& folder);

// Prints the job's output and its changes of state until it ends, and returns the exit code of the
// job, or of the signal that stops the following. A job that was cancelled or reached its time
// limit has 143. Throws backends::Error for a job that has left the queue for another reason.
int follow_job(const SubmittedJob& job);

}  // namespace tools
