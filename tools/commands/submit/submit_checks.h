// Checks the values of submit's options for the script.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tools {

// All throw UsageError.

// Returns "mail-type=END" also for "--mail-type=END". `what`: the option's name.
std::vector<std::string> plain_options(const std::vector<std::string>& given, const char* what);

// Rejects options of sbatch, as plain_options() returns them, that submit sets itself or has as
// options of its own.
void check_sbatch_options(const CLI::App& app, const std::vector<std::string>& options);

// Checks that the lines that the script makes of one are commands of bash. Without bash here, only
// the number of lines is checked.
void check_setup(const std::string& line);

// Checks the shell words that start the program.
void check_program(const std::string& words);

}  // namespace tools
