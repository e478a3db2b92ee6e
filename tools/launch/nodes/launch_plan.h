// From options to a plan: number of workers, their ranks, the rendezvous address, and each worker's
// environment.
#pragma once

#include <string>
#include <vector>

#include "tools/launch/nodes/launch_options.h"

namespace tools {

struct LaunchPlan {
  int nnodes = 1, node_rank = 0, nproc = 1;
  std::vector<int> gpus;        // one for each worker: N of cuda:N; empty: none is theirs
  std::string unused_gpus;      // what is to be said of those that are passed over, or ""
  int threads = 1;              // of each worker, for OMP_NUM_THREADS
  bool threads_chosen = false;  // the user has not set OMP_NUM_THREADS
  std::string host;             // this one, for messages
  std::string master_addr;      // "" when init_method says where
  int master_port = 0;          // 0: chosen when the socket is bound
  std::string init_method;      // file:///PATH, else ""
  std::string run_id;           // names the logs, and the job where all nodes know it
  bool common_run_id = true;    // all nodes know it
  bool own_command = false;     // the command is one of this program
  int max_restarts = 0;
  std::string
      elastic;  // MIN:MAX ranks, as this program's own command was given it; "": not elastic

  int world_size() const { return nnodes * nproc; }
  int rank(int local_rank) const { return node_rank * nproc + local_rank; }
};

// What the command, one of this program's own, says of --elastic; "": nothing.
std::string elastic_of(const std::vector<std::string>& command);

// Throws UsageError and io::ConfigError. With hosts the node rank is 0.
LaunchPlan make_launch_plan(const LaunchOptions& options);

// "rank,node,device,threads,address", then a line for each rank of the job.
std::string plan_table(const LaunchPlan& plan, const LaunchOptions& options);

// The whole environment of a worker, as "K=V": that of this process, without what describes this
// process itself as a worker of somebody else, then the variables of the run, then --env. `extra`
// comes before --env.
std::vector<std::string> worker_environment(const LaunchPlan& plan, int local_rank, int attempt,
                                            const std::vector<std::string>& extra,
                                            const std::vector<std::string>& from_user);

}  // namespace tools
