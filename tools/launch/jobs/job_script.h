// Writes the batch script of a training run: it saves before the time limit, goes back into the
// queue, and continues there until the run is complete.
#pragma once

#include <string>

#include "tools/launch/jobs/job_request.h"

namespace tools {

// The files of jobs in a run's folder.
inline constexpr const char* kJobScript = "job.sh";
std::string job_log_name(const std::string& job);    // output: "job-12.log"
std::string job_notes_name(const std::string& job);  // starts and end, by the script: "job-12.txt"

// Returns the script. Throws io::ConfigError for what the scheduler cannot do.
std::string job_script(const JobRequest& request);

// Returns the lines of the script for a line of --setup.
std::string setup_lines(const std::string& line);

// Returns true for a text that job_script() has returned.
bool is_job_script(const std::string& text);

}  // namespace tools
