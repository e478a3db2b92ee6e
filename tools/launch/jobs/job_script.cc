// Composes the script: the scheduler's directives, functions that differ between schedulers, and
// job_body.sh.
#include "tools/launch/jobs/job_script.h"

#include <algorithm>
#include <cctype>

#include "io/base/files/io_error.h"
#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"
#include "tools/launch/jobs/job_files.h"
#include "tools/launch/jobs/other_schedulers.h"
#include "tools/report/output/shell_text.h"

namespace tools {
namespace {

// Returns the text as one word of a directive. sbatch reads \" and \\ in double quotes, and no
// escaped blank outside of them.
std::string directive_text(const std::string& text) {
  constexpr std::string_view kPlain = "-_=./,:@%+[]";
  const auto is_plain = [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || kPlain.find(c) != kPlain.npos;
  };
  if (std::ranges::all_of(text, is_plain)) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

constexpr std::string_view kAuthorLine = "# Written by `engine submit`.\n";

void check_words(const JobRequest& request) {
  std::vector<std::string> words{request.place.name, request.place.partition, request.place.account,
                                 request.place.qos};
  words.insert(words.end(), request.sbatch.begin(), request.sbatch.end());
  for (const std::string& word : words)
    if (std::ranges::any_of(
            word, [](char c) { return std::iscntrl(static_cast<unsigned char>(c)) != 0; }))
      throw io::ConfigError("'" + base::escape_text(word) +
                            "' has a line break or another control character, which a directive "
                            "of a script cannot have");
}

// A file name of sbatch has %a for the task, and %% for a percent sign.
std::string log_pattern(const JobRequest& request) {
  const bool array = !request.array.spec.empty();
  std::string pattern;
  for (const std::string& part :
       array ? split_at_task(request.folder) : std::vector<std::string>{request.folder}) {
    if (!pattern.empty()) pattern += "%a";
    for (const char c : part) pattern += c == '%' ? std::string("%%") : std::string(1, c);
  }
  return pattern + "/" + job_log_name(array ? "%A_%a" : "%j");
}

// With a number of tasks SLURM would give the job the fewest nodes of its range, so that only
// srun gets it.
bool has_node_range(const JobResources& resources) { return resources.max_nodes > resources.nodes; }

std::string slurm_directives(const JobRequest& request) {
  std::string text;
  const auto add = [&](const std::string& name, const std::string& value) {
    if (!value.empty()) text += "#SBATCH --" + name + "=" + directive_text(value) + "\n";
  };
  const auto number = [](std::int64_t value) { return value == 0 ? "" : std::to_string(value); };
  const JobResources& r = request.resources;
  add("job-name", request.place.name);
  add("partition", request.place.partition);
  add("account", request.place.account);
  add("qos", request.place.qos);
  add("nodes", number(r.nodes) + (has_node_range(r) ? "-" + number(r.max_nodes) : ""));
  if (has_node_range(r)) {
    add("mincpus", number(std::int64_t{r.tasks_per_node} * std::max(1, r.cpus_per_task)));
  } else {
    add("ntasks-per-node", number(r.tasks_per_node));
    add("cpus-per-task", number(r.cpus_per_task));
  }
  add("gpus-per-node", (r.gpu_type.empty() ? "" : r.gpu_type + ":") + number(r.gpus_per_node));
  add("mem", r.memory);
  if (r.is_unlimited) add("time", "UNLIMITED");
  if (r.seconds != 0) add("time", number((r.seconds + 59) / 60));  // sbatch rounds up to minutes
  add("array", request.array.spec);
  add("signal", request.signal + "@" + number(request.signal_before));
  add("output", log_pattern(request));
  for (const std::string& option : request.sbatch) {
    const std::size_t equals = option.find('=');
    if (equals == std::string::npos)
      text += "#SBATCH --" + directive_text(option) + "\n";
    else
      add(option.substr(0, equals), option.substr(equals + 1));
  }
  return text + "#SBATCH --open-mode=append\n#SBATCH --requeue\n" +
         (request.elastic ? "#SBATCH --no-kill\n" : "");
}

// A preemption with a grace time begins with a SIGTERM to the ranks, as scancel --signal=TERM does.
// A job that was preempted in an earlier start may still have the time of that.
constexpr std::string_view kSlurmPreempted =
    "is_preempted() {\n"
    "  local record start\n"
    "  record=$(SLURM_TIME_FORMAT=standard scontrol show job \"$job\") || return\n"
    "  [[ $record == *JobState=RUNNING* && $record =~ StartTime=([0-9][0-9T:-]*) ]] || return\n"
    "  start=${BASH_REMATCH[1]}\n"
    "  [[ $record =~ PreemptTime=([0-9][0-9T:-]*) && ! ${BASH_REMATCH[1]} < $start ]]\n"
    "}\n";

// After the loss of a node SLURM may put the job back before the script does, whose own requeue
// then fails.
constexpr std::string_view kSlurmRequeue =
    "is_requeued() { [[ $(scontrol show job \"$job\") =~ Restarts=([0-9]+) ]] && "
    "((BASH_REMATCH[1] > ${SLURM_RESTART_COUNT:-0})); }\n"
    "requeue() { scontrol requeue \"$job\" || is_requeued; }\n";

std::string slurm_functions(const JobRequest& request) {
  const bool several = request.resources.max_nodes > 1;
  std::string options = request.elastic ? " --no-kill --kill-on-bad-exit=0 --wait=0" : "";
  const std::string check =
      "  srun --nodes=\"$SLURM_JOB_NUM_NODES\" --ntasks=\"$SLURM_JOB_NUM_NODES\" "
      "--ntasks-per-node=1" +
      options +
      " bash -c '\n"
      "    for second in 1 2 3 4 5; do [ -e \"$0\" ] && exit; sleep 1; done\n"
      "    echo \"engine submit: node ${SLURMD_NODENAME:-$(hostname)} does not see $0: expected a "
      "folder that all nodes share\" >&2; exit 73' \"$notes\"\n"
      "  [ $? -ne 73 ] || finish 73\n";
  if (has_node_range(request.resources))
    options += " --ntasks-per-node=" + std::to_string(request.resources.tasks_per_node);
  if (request.resources.cpus_per_task > 0)
    options += " --cpus-per-task=" + std::to_string(request.resources.cpus_per_task);
  for (const std::string& option : request.srun) options += " --" + shell_word(option);
  return "check_nodes() {\n" + (several ? check : "  :\n") + "}\ntrain() {\n  srun" + options +
         " " + request.program + " train" + train_words(request) + "\n}\n" +
         std::string(kSlurmRequeue) + std::string(kSlurmPreempted);
}

// A line may end in a comment, so that its check is on the next one.
std::string setup_function(const std::vector<std::string>& lines) {
  std::string text = "prepare() {\n";
  for (const std::string& line : lines) text += setup_lines(line);
  return text + (lines.empty() ? "  :\n" : "") + "}\n";
}

std::string slurm_names(const JobRequest& request) {
  return request.array.spec.empty() ? "job=$SLURM_JOB_ID\n"
                                    : "task=$SLURM_ARRAY_TASK_ID\n"
                                      "job=${SLURM_ARRAY_JOB_ID}_$task\n";
}

}  // namespace

std::string setup_lines(const std::string& line) {
  return "  {\n    " + line + "\n  } || return\n";
}

std::string job_log_name(const std::string& job) { return "job-" + job + ".log"; }
std::string job_notes_name(const std::string& job) { return "job-" + job + ".txt"; }

std::string job_script(const JobRequest& request) {
  const bool slurm = request.scheduler == Scheduler::kSlurm;
  check_words(request);
  for (const std::string& path : {request.folder, request.directory})
    if (path.find('\n') != std::string::npos || (slurm && path.find('\\') != std::string::npos))
      throw io::ConfigError("the path '" + path +
                            "' has a line break or a backslash, which schedulers read otherwise: "
                            "expected a path without");
  return "#!/bin/bash\n" + (slurm ? slurm_directives(request) : other_directives(request)) +
         "# Trains until the run is complete: before the time limit the program saves, and the job "
         "goes back into the queue.\n" +
         std::string(kAuthorLine) + (slurm ? slurm_names(request) : other_names(request)) +
         "folder=" + shell_text_of_task(request, request.folder) +
         "\ndirectory=" + shell_word(request.directory) + "\nnotes=$folder/" +
         job_notes_name("$job") + "\n" + "elastic=" + (request.elastic ? "1" : "") + "\n" +
         (slurm ? ""
                : "mkdir -p \"$folder\" || exit 73\nexec >>\"$folder/" + job_log_name("$job") +
                      "\" 2>&1\n") +
         setup_function(request.setup) +
         (slurm ? slurm_functions(request) : other_functions(request)) + "\n" + kJobBody;
}

bool is_job_script(const std::string& text) {
  return text.find("\n" + std::string(kAuthorLine)) != std::string::npos;
}

}  // namespace tools
