// Makes the environment of a worker.
#include <unistd.h>

#include <algorithm>
#include <map>

#include "tools/launch/nodes/launch_plan.h"

namespace tools {
namespace {

// Variables that are removed: schedulers' values for the launcher's own process are wrong for a
// worker, and options of this program would take precedence over the variables of the run.
constexpr const char* kDropped[] = {"ENGINE_RANK",
                                    "ENGINE_WORLD_SIZE",
                                    "ENGINE_LOCAL_RANK",
                                    "ENGINE_INIT_METHOD",
                                    "ENGINE_SPAWN",
                                    "ENGINE_LISTEN_FD",
                                    "MASTER_ADD",
                                    "MASTER_ADDR",
                                    "MASTER_PORT",
                                    "SLURM_PROCID",
                                    "SLURM_LOCALID",
                                    "SLURM_NTASKS",
                                    "SLURM_NPROCS",
                                    "SLURM_STEP_NUM_TASKS",
                                    "SLURM_STEP_TASKS_PER_NODE",
                                    "OMPI_COMM_WORLD_RANK",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_RANK",
                                    "OMPI_COMM_WORLD_LOCAL_SIZE",
                                    "MV2_COMM_WORLD_RANK",
                                    "MV2_COMM_WORLD_SIZE",
                                    "MV2_COMM_WORLD_LOCAL_RANK",
                                    "MV2_COMM_WORLD_LOCAL_SIZE",
                                    "MVP_COMM_WORLD_RANK",
                                    "MVP_COMM_WORLD_SIZE",
                                    "MVP_COMM_WORLD_LOCAL_RANK",
                                    "MVP_COMM_WORLD_LOCAL_SIZE",
                                    "PMI_RANK",
                                    "PMI_SIZE",
                                    "PMIX_RANK",
                                    "TORCHELASTIC_USE_AGENT_STORE"};

using Variables = std::map<std::string, std::string>;

void set(Variables& variables, const std::string& entry) {
  const std::size_t equals = entry.find('=');
  if (equals != std::string::npos && equals > 0)
    variables[entry.substr(0, equals)] = entry.substr(equals + 1);
}

void set_places(Variables& v, const LaunchPlan& plan, int local_rank, int attempt) {
  const auto number = [&](const char* name, int value) { v[name] = std::to_string(value); };
  number("RANK", plan.rank(local_rank));
  number("WORLD_SIZE", plan.world_size());
  number("LOCAL_RANK", local_rank);
  number("LOCAL_WORLD_SIZE", plan.nproc);
  number("NODE_RANK", plan.node_rank);
  number("GROUP_RANK", plan.node_rank);
  number("GROUP_WORLD_SIZE", plan.nnodes);
  number("ROLE_RANK", plan.rank(local_rank));
  number("ROLE_WORLD_SIZE", plan.world_size());
  number("ENGINE_RESTART_COUNT", attempt);
  number("TORCHELASTIC_RESTART_COUNT", attempt);
  number("TORCHELASTIC_MAX_RESTARTS", plan.max_restarts);
  v["TORCHELASTIC_RUN_ID"] = plan.common_run_id ? plan.run_id : "none";
}

}  // namespace

std::vector<std::string> worker_environment(const LaunchPlan& plan, int local_rank, int attempt,
                                            const std::vector<std::string>& extra,
                                            const std::vector<std::string>& from_user) {
  Variables variables;
  for (char** entry = environ; *entry != nullptr; ++entry) set(variables, *entry);
  for (const char* name : kDropped) variables.erase(name);
  set_places(variables, plan, local_rank, attempt);
  if (!plan.init_method.empty()) {
    variables["ENGINE_INIT_METHOD"] = plan.init_method;
  } else {
    variables["MASTER_ADDR"] = plan.master_addr;
    variables["MASTER_PORT"] = std::to_string(plan.master_port);
  }
  if (plan.common_run_id) variables.emplace("ENGINE_JOB_ID", plan.run_id);
  variables.erase("ENGINE_LAUNCH_ID");
  if (!plan.launch_id.empty()) variables["ENGINE_LAUNCH_ID"] = plan.launch_id;
  if (!plan.elastic.empty()) variables["ENGINE_ELASTIC"] = plan.elastic;
  if (plan.threads_chosen) variables["OMP_NUM_THREADS"] = std::to_string(plan.threads);
  for (const std::string& entry : extra) set(variables, entry);
  for (const std::string& entry : from_user) set(variables, entry);
  std::vector<std::string> result;
  for (const auto& [name, value] : variables) result.push_back(name + "=" + value);
  return result;
}

}  // namespace tools
