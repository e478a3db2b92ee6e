// Collects what the outputs of a run or a launcher lack, for the error at its end: a lost line of
// metrics does not end a training run, but its exit code must not report success.
#pragma once

#include <string>

namespace tools {

// Adds one line: "metrics m.jsonl: 2 lines are missing: No space left on device"; "" adds nothing.
// `code` is the exit code that fits. Applies to the whole process; any thread.
void note_lost_output(const std::string& what, int code);

// Throws io::CannotCreateError or io::Error, by the first code, with all that was added and with
// what the logs lack.
void check_lost_outputs();

}  // namespace tools
