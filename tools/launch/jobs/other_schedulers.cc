// These schedulers have no srun: ranks of one node are started by train --spawn, those of several
// by engine launch over ssh.
#include "tools/launch/jobs/other_schedulers.h"

#include <algorithm>

#include "io/base/files/io_error.h"
#include "io/base/text/text_parts.h"
#include "tools/report/output/shell_text.h"

namespace tools {
namespace {

constexpr int kRendezvousPort = 29500;

std::string two_digits(std::int64_t value) {
  return (value < 10 ? "0" : "") + std::to_string(value);
}
std::string walltime_text(std::int64_t seconds) {
  return two_digits(seconds / 3600) + ":" + two_digits(seconds / 60 % 60) + ":" +
         two_digits(seconds % 60);
}

// Collects lines such as "#PBS -q debug".
class Directives {
 public:
  explicit Directives(std::string mark) : mark_(std::move(mark)) {}
  void add(const std::string& option, const std::string& value) {
    if (!value.empty()) text_ += mark_ + " " + option + " " + value + "\n";
  }
  void add(const std::string& option) { text_ += mark_ + " " + option + "\n"; }
  const std::string& text() const { return text_; }

 private:
  std::string mark_, text_;
};

int cpus_per_task(const JobResources& r) { return std::max(1, r.cpus_per_task); }

std::string pbs_directives(const JobRequest& request) {
  const JobResources& r = request.resources;
  Directives lines("#PBS");
  lines.add("-S /bin/bash");
  lines.add("-N", request.place.name);
  std::string select = "select=" + std::to_string(r.nodes) +
                       ":ncpus=" + std::to_string(cpus_per_task(r) * r.tasks_per_node) +
                       ":mpiprocs=" + std::to_string(r.tasks_per_node);
  if (r.gpus_per_node > 0) select += ":ngpus=" + std::to_string(r.gpus_per_node);
  if (!r.memory.empty()) select += ":mem=" + std::to_string(parse_memory(r.memory)) + "mb";
  lines.add("-l", select);
  if (r.nodes > 1) lines.add("-l", "place=scatter");  // else two chunks may share a host
  if (r.seconds > 0) lines.add("-l", "walltime=" + walltime_text(r.seconds));
  lines.add("-q", request.place.partition);
  lines.add("-A", request.place.account);
  lines.add("-r y");
  lines.add("-j oe");
  lines.add("-o /dev/null");
  return lines.text();
}

std::string lsf_directives(const JobRequest& request) {
  const JobResources& r = request.resources;
  const int slots = cpus_per_task(r) * r.tasks_per_node;
  Directives lines("#BSUB");
  lines.add("-J", request.place.name);
  lines.add("-n", std::to_string(slots * r.nodes));
  lines.add("-R", "\"span[ptile=" + std::to_string(slots) + "]\"");
  if (!r.memory.empty())
    lines.add("-R", "\"rusage[mem=" + std::to_string(parse_memory(r.memory)) + "MB]\"");
  if (r.gpus_per_node > 0)
    lines.add("-gpu", "\"num=" + std::to_string(r.gpus_per_node) + "/host\"");
  if (r.seconds > 0) {
    lines.add("-W", std::to_string((r.seconds + 59) / 60));
    lines.add("-wa", "USR2");
    lines.add("-wt", std::to_string((request.signal_before + 59) / 60));
  }
  lines.add("-q", request.place.partition);
  lines.add("-P", request.place.account);
  lines.add("-Q", "75");  // put back into the queue after this exit code
  lines.add("-r");
  lines.add("-o /dev/null");
  return lines.text();
}

std::string sge_directives(const JobRequest& request) {
  const JobResources& r = request.resources;
  if (r.nodes > 1)
    throw io::ConfigError("--nodes " + std::to_string(r.nodes) +
                          " with --scheduler sge: expected 1, since each site has its own parallel "
                          "environments for several hosts");
  if (!r.memory.empty())
    throw io::ConfigError("--mem " + r.memory +
                          " with --scheduler sge: leave it out, since its limits are per slot and "
                          "named by the site");
  if (r.gpus_per_node > 0)
    throw io::ConfigError("--gpus-per-node " + std::to_string(r.gpus_per_node) +
                          " with --scheduler sge: give --ntasks-per-node, and add the site's "
                          "request for GPUs to the printed script, since it counts per slot at "
                          "some sites and per job at others");
  Directives lines("#$");
  lines.add("-S /bin/bash");
  // Grid Engine rejects names that begin with a digit.
  const std::string& name = request.place.name;
  const bool digit = !name.empty() && name.front() >= '0' && name.front() <= '9';
  lines.add("-N", digit ? "run-" + name : name);
  if (const int slots = cpus_per_task(r) * r.tasks_per_node; slots > 1)
    lines.add("-pe smp", std::to_string(slots));
  if (r.seconds > 0) {
    lines.add("-l", "h_rt=" + std::to_string(r.seconds));
    lines.add("-l", "s_rt=" + std::to_string(r.seconds - request.signal_before));
  }
  lines.add("-q", request.place.partition);
  lines.add("-P", request.place.account);
  lines.add("-notify");
  lines.add("-r y");
  lines.add("-j y");
  lines.add("-o /dev/null");
  return lines.text();
}

// Returns the hosts of the job as a list with commas, the first one first.
std::string host_list_words(Scheduler scheduler) {
  if (scheduler == Scheduler::kPbs) return "awk '!seen[$0]++' \"$PBS_NODEFILE\" | paste -sd, -";
  return "awk '{ for (i = 1; i < NF; i += 2) if (!seen[$i]++) print $i }' <<<\"$LSB_MCPU_HOSTS\" | "
         "paste -sd, -";
}

std::string train_line(const JobRequest& request) {
  const JobResources& r = request.resources;
  const std::string tasks = std::to_string(r.tasks_per_node);
  const std::string words = train_words(request);
  if (r.nodes > 1)
    return request.program + " launch --hosts \"$(hosts)\" --nproc-per-node " + tasks +
           " --master-port " + std::to_string(kRendezvousPort) + " train" + words;
  return request.program + " train" + words +
         (r.tasks_per_node > 1 ? " --spawn " + tasks : std::string());
}

// With fewer hosts, the job would train with fewer ranks than requested.
std::string host_functions(const JobRequest& request) {
  const std::string nodes = std::to_string(request.resources.nodes);
  if (request.resources.nodes == 1) return "check_nodes() { :; }\n";
  return "hosts() { " + host_list_words(request.scheduler) +
         "; }\ncheck_nodes() {\n"
         "  local names count\n"
         "  names=$(hosts)\n"
         "  count=$(tr , '\\n' <<<\"$names\" | grep -c .)\n"
         "  [ \"$count\" = " +
         nodes +
         " ] && return\n"
         "  log_info \"job $job has $count host$([ \"$count\" = 1 ] || echo s) ($names): "
         "expected " +
         nodes + "\"\n  finish 78\n}\n";
}

}  // namespace

std::string other_directives(const JobRequest& request) {
  const bool pbs = request.scheduler == Scheduler::kPbs, lsf = request.scheduler == Scheduler::kLsf;
  return pbs ? pbs_directives(request) : lsf ? lsf_directives(request) : sge_directives(request);
}

// PBS gives a job that submits itself again another number; its notes keep the first one.
std::string other_names(const JobRequest& request) {
  if (request.scheduler == Scheduler::kPbs) return "job=${FIRST_JOB:-$PBS_JOBID}\n";
  return request.scheduler == Scheduler::kLsf ? "job=$LSB_JOBID\n" : "job=$JOB_ID\n";
}

// The scheduler's signal also goes to the shell, which has to live on until the program has saved.
std::string other_functions(const JobRequest& request) {
  const std::string begin = "trap : USR1 USR2 XCPU\nis_preempted() { false; }\n" +
                            host_functions(request) + "train() {\n";
  const std::string line = "  " + train_line(request);
  const std::int64_t seconds = request.resources.seconds;
  if (request.scheduler == Scheduler::kLsf) return begin + line + "\n}\nrequeue() { exit 75; }\n";
  if (request.scheduler == Scheduler::kSge) return begin + line + "\n}\nrequeue() { exit 99; }\n";
  const std::string again = "requeue() { qsub -v FIRST_JOB=\"$job\" \"$folder/job.sh\"; }\n";
  if (seconds == 0) return begin + line + "\n}\n" + again;
  // PBS does not announce the time limit.
  return begin + line + " &\n  local training=$! timer code\n  (\n    sleep " +
         std::to_string(seconds - request.signal_before) +
         " &\n    trap \"kill $!\" TERM\n    wait $! && kill -USR2 $training\n"
         "  ) >/dev/null 2>&1 &\n  timer=$!\n  wait $training; code=$?\n"
         "  while kill -0 $training 2>/dev/null; do wait $training; code=$?; done\n"
         "  kill $timer 2>/dev/null\n  return $code\n}\n" +
         again;
}

std::string shell_text_of_task(const JobRequest& request, const std::string& text) {
  if (request.array.spec.empty() || text.find("%a") == std::string::npos) return shell_word(text);
  std::string result;
  const std::vector<std::string> parts = split_at_task(text);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) result += "\"$task\"";
    if (!parts[i].empty()) result += shell_quoted(parts[i]);
  }
  return result;
}

std::string train_words(const JobRequest& request) {
  std::string words;
  for (const std::string& argument : request.train)
    words += " " + shell_text_of_task(request, argument);
  return words;
}

}  // namespace tools
