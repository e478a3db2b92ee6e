// Parses the command line of `engine submit`, and checks that of `engine train` in it.
#pragma once

#include <optional>
#include <string>

#include "tools/launch/jobs/job_request.h"
#include "tools/options/input/command_line.h"

namespace tools {

struct SubmitOptions {
  JobRequest request;
  bool print = false, wait = true;
  std::string status, cancel;  // a run's folder or a job; "": a job is submitted
};

// Returns nothing if help was requested, and printed. Throws UsageError and io::ConfigError, also
// for options of train that would fail in the job; io::CannotCreateError for a folder that holds
// another run.
std::optional<SubmitOptions> parse_submit_options(const Arguments& arguments);

}  // namespace tools
