// Lets bash check lines of shell, and CLI11 know the options of submit.
#include "tools/commands/submit/submit_checks.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <chrono>

#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"
#include "tools/launch/jobs/job_script.h"
#include "tools/launch/workers/child_program.h"
#include "tools/options/input/command_line.h"
#include "tools/report/output/exit_codes.h"

namespace tools {
namespace {

// Options of sbatch that follow from others; see also --sbatch's help.
constexpr const char* kManaged[] = {"output", "open-mode", "requeue",  "no-requeue",
                                    "signal", "wrap",      "no-kill",  "parsable",
                                    "wait",   "chdir",     "test-only"};

// Returns bash's message about the text; "" if it is valid, or without bash here.
std::string fault_of_shell(const std::string& text) {
  const std::string bash = find_program("bash");
  if (bash.empty()) return "";
  constexpr std::chrono::seconds kTimeout{10};
  const ProgramResult checked = run_program({bash, "-n", "-c", "f() {\n" + text + "\n}"}, kTimeout);
  if (checked.code.value_or(0) == 0) return "";
  // Without the place: "bash: -c: line 3: unexpected EOF ..."
  const std::string fault = base::split_text(checked.err, '\n').front();
  const std::size_t line = fault.find(" line "), end = fault.find(": ", line);
  return line == fault.npos || end == fault.npos ? fault : fault.substr(end + 2);
}

// `text`: what the script makes of `value`.
void check_shell(const std::string& option, const std::string& value, const std::string& text) {
  const bool blank = base::trimmed(value).empty();
  if (blank || value.find('\n') != std::string::npos)
    throw UsageError(option + " '" + base::escape_text(value) + "': expected one line of shell" +
                     (blank ? "" : "; give the option once for each"));
  if (const std::string fault = fault_of_shell(text); !fault.empty())
    throw UsageError(option + " '" + base::escape_text(value) + "' is no line of shell: " + fault);
}

}  // namespace

std::vector<std::string> plain_options(const std::vector<std::string>& given, const char* what) {
  std::vector<std::string> plain;
  for (std::string option : given) {
    option.erase(0, option.find_first_not_of('-'));
    const std::string name = option.substr(0, option.find('='));
    const bool valid = !name.empty() && option.find('\n') == std::string::npos &&
                       std::ranges::all_of(name, [](char c) {
                         return std::isalnum(static_cast<unsigned char>(c)) || c == '-';
                       });
    if (!valid)
      throw UsageError(std::string(what) + " '" + option +
                       "': expected the long name of an option, as NAME or NAME=VALUE");
    plain.push_back(std::move(option));
  }
  return plain;
}

void check_sbatch_options(const CLI::App& app, const std::vector<std::string>& options) {
  for (const std::string& option : options) {
    const std::string name = option.substr(0, option.find('='));
    if (std::ranges::find(kManaged, name) != std::end(kManaged))
      throw UsageError("--sbatch " + option + ": submit sets --" + name + " itself: leave it out");
    if (const std::string own = name == "job-name" ? "name" : name;
        app.get_option_no_throw("--" + own) != nullptr)
      throw UsageError("--sbatch " + option + ": give it as submit's own --" + own);
  }
}

void check_setup(const std::string& line) { check_shell("--setup", line, setup_lines(line)); }

void check_program(const std::string& words) {
  check_shell("--program", words, words + " train");
  // In a comment, the arguments that follow would be lost: the wrong ")" would be no error there.
  if (find_program("bash").empty() || !fault_of_shell(words + " )").empty()) return;
  throw UsageError("--program '" + base::escape_text(words) +
                   "' ends in a comment: expected words of shell before train and its options");
}

}  // namespace tools
