// Reads the output of SLURM's programs.
#include "tools/launch/jobs/slurm_queue.h"

#include <chrono>

#include "backends/backend_error.h"
#include "io/base/files/io_error.h"
#include "io/base/text/text_parts.h"
#include "tools/launch/workers/child_program.h"

namespace tools {
namespace {

constexpr std::chrono::seconds kSlurmTimeout{60};

bool contains_part(const std::string& text, const char* part) {
  return text.find(part) != text.npos;
}

std::string path_of(const std::string& name) {
  const std::string path = find_program(name);
  if (path.empty())
    throw io::ConfigError(name +
                          " of SLURM is not on the PATH: expected to run where jobs are submitted; "
                          "engine submit --print prints the script for another host or scheduler");
  return path;
}

ProgramResult run_slurm(std::vector<std::string> words) {
  const std::string name = words.front();
  words.front() = path_of(name);
  ProgramResult result = run_program(std::move(words), kSlurmTimeout);
  if (!result.code)
    throw backends::Error(name + " took longer than 60 s and was ended: SLURM does not answer");
  if (*result.code != 0 && contains_part(result.err, "contact"))
    throw backends::Error(name + " cannot reach SLURM: " + last_line(result.err));
  return result;
}

[[noreturn]] void fail_in_slurm(const char* name, const ProgramResult& result) {
  throw io::ConfigError(std::string(name) + " ended with exit code " +
                        std::to_string(result.code.value_or(0)) + ": " + last_line(result.err));
}

// Returns the value of a line "   NAME=VALUE".
std::string field_of(const std::vector<std::string>& lines, const std::string& name) {
  for (const std::string& line : lines)
    if (const std::string_view text = base::trimmed(line); text.starts_with(name + "="))
      return std::string(text.substr(name.size() + 1));
  return "";
}

// Returns the value of "NAME=VALUE" among others on a line.
std::string word_of(const std::string& text, const std::string& name) {
  const std::size_t begin = text.find(name + "=");
  if (begin == std::string::npos) return "";
  const std::size_t value = begin + name.size() + 1;
  return text.substr(value, text.find_first_of(" \n", value) - value);
}

}  // namespace

void check_sbatch() { static_cast<void>(path_of("sbatch")); }

std::string submit_to_slurm(const std::string& script) {
  const ProgramResult result = run_slurm({"sbatch", "--parsable", script});
  if (*result.code != 0) fail_in_slurm("sbatch", result);
  const std::string line = last_line(result.out);  // "12", or "12;cluster"
  return line.substr(0, line.find(';'));
}

void cancel_in_slurm(const std::string& job) {
  if (const ProgramResult result = run_slurm({"scancel", job}); *result.code != 0)
    fail_in_slurm("scancel", result);
}

std::vector<std::string> tasks_in_queue(const std::string& job) {
  const ProgramResult result =
      run_slurm({"squeue", "--noheader", "--jobs", job, "--format", "%i|%T|%N|%r|%M|%l"});
  std::vector<std::string> tasks;
  if (*result.code != 0) {
    if (contains_part(result.err, "Invalid job id"))
      return tasks;  // it has ended, and is forgotten
    fail_in_slurm("squeue", result);
  }
  for (const std::string& line : base::split_text(result.out, '\n')) {
    const std::vector<std::string> parts = base::split_text(line, '|');
    if (parts.size() != 6) continue;
    const std::string place = parts[2].empty() ? "" : " on " + parts[2],
                      reason = parts[3] == "None" ? "" : " (" + parts[3] + ")";
    tasks.push_back("job " + parts[0] + ": " + parts[1] + place + reason + ", " + parts[4] +
                    " of " + parts[5]);
  }
  return tasks;
}

std::optional<RememberedJob> remembered_job(const std::string& job) {
  const ProgramResult result = run_slurm({"scontrol", "show", "job", job});
  if (*result.code != 0) {
    if (contains_part(result.err, "Invalid job id")) return std::nullopt;
    fail_in_slurm("scontrol", result);
  }
  RememberedJob known{.state = word_of(result.out, "JobState"),
                      .reason = word_of(result.out, "Reason"),
                      .exit_code = word_of(result.out, "ExitCode"),
                      .script = field_of(base::split_text(result.out, '\n'), "Command"),
                      .is_array = !word_of(result.out, "ArrayJobId").empty()};
  return known.state.empty() ? std::nullopt : std::optional(known);
}

}  // namespace tools
