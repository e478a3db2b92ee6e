// The parts of job scripts for PBS, LSF and SGE.
#pragma once

#include <string>

#include "tools/launch/jobs/job_request.h"

namespace tools {

// Throw io::ConfigError for what the scheduler cannot do.
std::string other_directives(const JobRequest& request);  // "#PBS -N digits" ...
std::string other_names(const JobRequest& request);       // the variable `job`
std::string other_functions(const JobRequest& request);   // check_nodes, train, requeue

// Returns the arguments of train for a shell, each after a blank.
std::string train_words(const JobRequest& request);
// Returns the text in quotes for a shell, with the variable `task` for each %a of an array.
std::string shell_text_of_task(const JobRequest& request, const std::string& text);

}  // namespace tools
