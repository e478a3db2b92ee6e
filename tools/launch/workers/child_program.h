// Runs another program to its end, without a shell, and returns what it prints.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tools {

struct ProgramResult {
  std::optional<int> code;  // exit code, or 128 + the signal; none: killed before its end
  std::string out, err;     // at most 1 MiB of each
};

// Returns the path of an executable on the PATH; "" if there is none.
std::string find_program(const std::string& name);

// Runs words[0], a path, with the other words as arguments; standard input is empty. Kills it at
// the deadline, or within 0.1 s after `stops` returns true. Throws std::system_error if it cannot
// be started.
ProgramResult run_program(
    std::vector<std::string> words, std::chrono::milliseconds timeout,
    const std::function<bool()>& stops = [] { return false; });

// Returns the last line that is not blank; "" if there is none.
std::string last_line(const std::string& text);

}  // namespace tools
