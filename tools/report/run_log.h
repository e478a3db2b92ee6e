// log.txt of a run: what this process prints, line by line, with the time.
#pragma once

#include <string>

namespace tools {

// From now on the lines of say() and print_notice() are also appended to this file ("": no longer).
// A log that cannot be written is given up: the console has the lines.
void keep_log(const std::string& path);

// One line or several on stdout, flushed, so that a log of the console follows the run.
void say(const std::string& text);

// The line in the log alone, for what is printed elsewhere.
void log_line(const std::string& text);

}  // namespace tools
