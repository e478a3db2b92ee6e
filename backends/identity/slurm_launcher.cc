// Reads SLURM's variables. Those that srun sets for the step take precedence over those that sbatch
// sets for the job.
#include "backends/identity/slurm_launcher.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "backends/backend_error.h"
#include "backends/identity/hostlist.h"

namespace backends {
namespace {

constexpr int kMaxTasks = 65536, kMaxArrayId = 2'000'000'000;
// Step ids from here on are special (batch, interactive, extern), not steps of srun.
constexpr std::uint64_t kFirstSpecialStep = 0xfffffff0;

// Set for the tasks of srun, but not for a batch script.
constexpr std::initializer_list<const char*> kOfSrunAlone = {
    "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST",      "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_STEP_NUM_NODES", "SLURM_STEP_LAUNCHER_PORT", "SLURM_LAUNCH_NODE_IPADDR",
    "SLURM_SRUN_COMM_HOST"};

ResolvedValue first_of(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (ResolvedValue value = variable(environment, name); !value.value.empty()) return value;
  }
  return {};
}

bool is_srun_step(const ResolvedValue& step) {
  if (step.value.empty() || step.value.size() > 10) return false;
  if (!std::all_of(step.value.begin(), step.value.end(),
                   [](char c) { return c >= '0' && c <= '9'; }))
    return false;
  return std::stoull(step.value) < kFirstSpecialStep;
}

ResolvedValue host_of_task_0(const Environment& environment) {
  // With an arbitrary distribution the user's own list places the tasks.
  ResolvedValue list;
  if (variable(environment, "SLURM_DISTRIBUTION").value == "arbitrary")
    list = variable(environment, "SLURM_ARBITRARY_NODELIST");
  if (list.value.empty())
    list = first_of(environment, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  if (list.value.empty()) return {};
  return {expand_hostlist(list.value, list.source).front(), list.source};
}

void read_layout(Claim& claim, const Environment& environment, int world_size) {
  const ResolvedValue layout =
      first_of(environment, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  if (layout.value.empty()) return;
  const std::vector<int> tasks = tasks_per_node(layout);
  if (std::accumulate(tasks.begin(), tasks.end(), std::int64_t{0}) != world_size) {
    // The variable of the job, not of this step.
    if (layout.source == std::string("SLURM_TASKS_PER_NODE")) return;
    throw ConfigurationError(layout.source + "=" + layout.value +
                             ": expected tasks that add up to " + claim.world_size.source + "=" +
                             claim.world_size.value);
  }
  claim.one_per_node = std::all_of(tasks.begin(), tasks.end(), [](int n) { return n == 1; });
  if (claim.node_rank.value.empty()) return;
  const int node = whole_number(
      claim.node_rank, 0, static_cast<int>(tasks.size()) - 1,
      "a node from 0 below the " + std::to_string(tasks.size()) + " nodes of " + layout.source);
  claim.local_world_size = {std::to_string(tasks[static_cast<std::size_t>(node)]), layout.source};
}

std::string restart_suffix(const Environment& environment) {
  const ResolvedValue restarts = variable(environment, "SLURM_RESTART_COUNT");
  return restarts.value.empty() || restarts.value == "0" ? "" : "+" + restarts.value;
}

}  // namespace

std::optional<Claim> slurm_step_claim(const Environment& environment) {
  const ResolvedValue step = first_of(environment, {"SLURM_STEP_ID", "SLURM_STEPID"});
  const ResolvedValue rank = variable(environment, "SLURM_PROCID");
  if (rank.value.empty() || !is_srun_step(step)) return std::nullopt;
  Claim claim{.launcher = "SLURM step", .depth = 0};
  claim.rank = rank;
  claim.world_size =
      first_of(environment, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"});
  claim.local_rank = variable(environment, "SLURM_LOCALID");
  claim.node_rank = variable(environment, "SLURM_NODEID");
  if (claim.world_size.value.empty())
    throw ConfigurationError(
        "SLURM_PROCID=" + rank.value +
        " without a number of tasks: expected SLURM_STEP_NUM_TASKS or SLURM_NTASKS");
  const int world_size =
      whole_number(claim.world_size, 1, kMaxTasks, "a number of tasks, 1 or more");
  read_layout(claim, environment, world_size);
  claim.one_per_node |= world_size == 1;
  claim.master_host = host_of_task_0(environment);
  const ResolvedValue job = first_of(environment, {"SLURM_JOB_ID", "SLURM_JOBID"});
  if (!job.value.empty())
    claim.job = {"slurm " + job.value + "." + step.value + restart_suffix(environment),
                 job.source + " and " + step.source};
  return claim;
}

std::optional<Claim> slurm_array_claim(const Environment& environment) {
  const ResolvedValue id = variable(environment, "SLURM_ARRAY_TASK_ID");
  const ResolvedValue count = variable(environment, "SLURM_ARRAY_TASK_COUNT");
  if (id.value.empty() || count.value.empty()) return std::nullopt;
  const auto number_of = [&](const char* name, int fallback) {
    const ResolvedValue from = variable(environment, name);
    return from.value.empty() ? fallback
                              : whole_number(from, 0, kMaxArrayId, "a number of a job array");
  };
  const int size = whole_number(count, 1, kMaxTasks, "a number of array elements, 1 or more");
  const int least = number_of("SLURM_ARRAY_TASK_MIN", 0),
            step = std::max(1, number_of("SLURM_ARRAY_TASK_STEP", 1));
  const int most = number_of("SLURM_ARRAY_TASK_MAX", least + (size - 1) * step);
  const int mine = whole_number(
      id, least, most, "an element from " + std::to_string(least) + " to " + std::to_string(most));
  if ((most - least) / step + 1 != size || (mine - least) % step != 0) {
    throw ConfigurationError("SLURM_ARRAY_TASK_ID=" + id.value + " of an array of " + count.value +
                             " elements from " + std::to_string(least) + " to " +
                             std::to_string(most) + " with step " + std::to_string(step) +
                             " gives no rank: number the array without gaps (--array=0-" +
                             std::to_string(size - 1) + "), or give --rank and --world-size");
  }
  Claim claim{.launcher = "SLURM array", .depth = 1, .one_per_node = true};
  claim.rank = {std::to_string((mine - least) / step), id.source};
  claim.world_size = count;
  if (const ResolvedValue job = variable(environment, "SLURM_ARRAY_JOB_ID"); !job.value.empty())
    claim.job = {"slurm array " + job.value, job.source};
  return claim;
}

std::string slurm_batch_notice(const Environment& environment) {
  const ResolvedValue job = first_of(environment, {"SLURM_JOB_ID", "SLURM_JOBID"});
  const ResolvedValue tasks = first_of(environment, {"SLURM_NTASKS", "SLURM_NPROCS"});
  if (tasks.value.empty() || tasks.value == "1" || slurm_step_claim(environment)) return "";
  // A batch script is task 0 of its own step, and its job is known.
  const ResolvedValue task = variable(environment, "SLURM_PROCID");
  const bool may_be_batch =
      task.value.empty() || (task.value == "0" && !job.value.empty() &&
                             first_of(environment, kOfSrunAlone).value.empty());
  if (!may_be_batch && first_of(environment, {"SLURM_STEP_ID", "SLURM_STEPID"}).value.empty())
    throw ConfigurationError(
        task.source + "=" + task.value + " and " + tasks.source + "=" + tasks.value +
        ", but no SLURM_STEP_ID: expected all variables of the step (a container may forward a few "
        "only: add SLURM_STEP_ID, SLURM_STEP_NUM_TASKS and SLURM_STEP_NODELIST), or --rank and "
        "--world-size");
  if (job.value.empty()) return "";
  return "this process is not a task of SLURM job " + job.value + " (" + tasks.source + "=" +
         tasks.value + "): it is one rank alone; start the ranks with srun";
}

std::vector<int> tasks_per_node(const ResolvedValue& from) {
  constexpr const char* kExpected = "tasks of each node such as 2(x3),1";
  std::vector<int> tasks;
  std::string_view rest = from.value;
  while (!rest.empty()) {
    std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const auto bad = [&] {
      return ConfigurationError(from.source + "=" + from.value + ": expected " + kExpected);
    };
    int times = 1;
    if (const std::size_t open = item.find("(x"); open != std::string_view::npos) {
      if (item.back() != ')') throw bad();
      const std::string count(item.substr(open + 2, item.size() - open - 3));
      try {
        times = whole_number({count, from.source}, 1, kMaxTasks, kExpected);
      } catch (const ConfigurationError&) {
        throw bad();
      }
      item = item.substr(0, open);
    }
    try {
      const int each = whole_number({std::string(item), from.source}, 0, kMaxTasks, kExpected);
      if (tasks.size() + static_cast<std::size_t>(times) > kMaxTasks) throw bad();
      tasks.insert(tasks.end(), static_cast<std::size_t>(times), each);
    } catch (const ConfigurationError&) {
      throw bad();
    }
  }
  return tasks;
}

int smallest_gpu(const ResolvedValue& from) {
  int smallest = kMaxTasks;
  std::string_view rest = from.value;
  while (!rest.empty()) {
    std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const std::string low(item.substr(0, item.find('-')));
    try {
      smallest = std::min(smallest, whole_number({low, from.source}, 0, kMaxTasks - 1, ""));
    } catch (const ConfigurationError&) {
      throw ConfigurationError(from.source + "=" + from.value +
                               ": expected GPU numbers such as 0,1 or 2-3");
    }
  }
  return smallest;
}

}  // namespace backends
