// Reads the output of SLURM's programs.
#include "tools/launch/jobs/slurm_queue.h"

#include <algorithm>
#include <chrono>

#include "backends/backend_error.h"
#include "io/base/files/io_error.h"
#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"
#include "tools/launch/workers/child_program.h"
#include "tools/report/output/run_log.h"

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

// Returns all lines in one, with "; " between them: the reason of an error may be in any.
std::string joined_lines(const std::string& text) {
  constexpr std::size_t kMaxLines = 10;
  std::vector<std::string> lines;
  for (const std::string& line : base::split_text(text, '\n'))
    if (const std::string_view words = base::trimmed(line); !words.empty())
      lines.emplace_back(words);
  if (lines.size() > kMaxLines) lines.erase(lines.begin(), lines.end() - kMaxLines);
  return base::join_text(lines, "; ");
}

bool never() { return false; }

ProgramResult run_slurm(std::vector<std::string> words,
                        const std::function<bool()>& stops = never) {
  const std::string name = words.front();
  words.front() = path_of(name);
  ProgramResult result = run_program(std::move(words), kSlurmTimeout, stops);
  if (!result.code)
    throw backends::Error(name + " took longer than 60 s and was ended: SLURM does not answer");
  if (*result.code != 0 && contains_part(result.err, "contact"))
    throw backends::Error(name + " cannot reach SLURM: " + joined_lines(result.err));
  return result;
}

[[noreturn]] void fail_in_slurm(const char* name, const ProgramResult& result) {
  throw io::ConfigError(std::string(name) + " ended with exit code " +
                        std::to_string(result.code.value_or(0)) + ": " + joined_lines(result.err));
}

// Returns the words that make a program of SLURM ask the job's cluster.
std::vector<std::string> words_for(const SlurmJob& job, const std::string& program) {
  if (job.cluster.empty()) return {program};
  return {program, "--clusters=" + job.cluster};
}

std::vector<std::string> joined(std::vector<std::string> words,
                                const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Reads the answer of sbatch --parsable, "12" or "12;cluster", or of one that ignores the option.
std::optional<SlurmJob> submitted_job_of(const std::string& line) {
  constexpr std::string_view kSentence = "Submitted batch job ", kPlace = " on cluster ";
  std::string text = line;
  if (text.starts_with(kSentence)) {
    text.erase(0, kSentence.size());
    if (const std::size_t place = text.find(kPlace); place != text.npos)
      text.replace(place, kPlace.size(), ";");
  }
  const std::size_t end = std::min(text.find(';'), text.size());
  const std::string id = text.substr(0, end);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (id.empty() || !std::ranges::all_of(id, is_digit)) return std::nullopt;
  return SlurmJob{id, end < text.size() ? text.substr(end + 1) : ""};
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

SlurmJob submit_to_slurm(const std::string& script) {
  const ProgramResult result = run_slurm({"sbatch", "--parsable", script});
  if (*result.code != 0) fail_in_slurm("sbatch", result);
  for (const std::string& line : base::split_text(result.err, '\n'))
    if (!base::trimmed(line).empty()) print_notice(line);
  const std::optional<SlurmJob> job = submitted_job_of(last_line(result.out));
  if (!job)
    throw backends::Error("sbatch printed no job's number: '" +
                          base::escape_text(joined_lines(result.out)) +
                          "'; squeue --me shows whether the job is in the queue");
  return *job;
}

void cancel_in_slurm(const SlurmJob& job) {
  if (const ProgramResult result = run_slurm(joined(words_for(job, "scancel"), {job.id}));
      *result.code != 0)
    fail_in_slurm("scancel", result);
}

std::vector<std::string> tasks_in_queue(const SlurmJob& job, const std::function<bool()>& stops) {
  const ProgramResult result =
      run_slurm(joined(words_for(job, "squeue"),
                       {"--noheader", "--jobs", job.id, "--format", "%i|%T|%N|%r|%M|%l"}),
                stops);
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

std::optional<RememberedJob> remembered_job(const SlurmJob& job) {
  const ProgramResult result =
      run_slurm(joined(words_for(job, "scontrol"), {"show", "job", job.id}));
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
