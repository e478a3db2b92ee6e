// Makes a plan from options: the number of workers, their ranks, the rendezvous address, and each
// worker's environment.
#pragma once

#include <string>
#include <vector>

#include "tools/launch/nodes/launch_options.h"

namespace tools {

struct LaunchPlan {
  int nnodes = 1, node_rank = 0, nproc = 1;
  std::vector<int> gpus;        // one per worker: N of cuda:N; empty: none is assigned
  std::string unused_gpus;      // the notice about skipped ones, or ""
  int threads = 1;              // per worker, for OMP_NUM_THREADS
  bool threads_chosen = false;  // true if the user has not set OMP_NUM_THREADS
  std::string host;             // this host, for messages
  std::string master_addr;      // "" if init_method is set
  int master_port = 0;          // 0: chosen when the socket is bound
  std::string init_method;      // file:///PATH, else ""
  std::string run_id;           // names the logs, and the job if all nodes know it
  bool common_run_id = true;    // all nodes know it
  // The same for all restarts of this launcher's workers, and for no other launch; in an elastic
  // job for all nodes. "": unknown.
  std::string launch_id;
  bool own_command = false;  // true if the command is one of this program
  int max_restarts = 0;
  // MIN:MAX ranks, as given to this program's own command; "": not elastic.
  std::string elastic;

  int world_size() const { return nnodes * nproc; }
  int rank(int local_rank) const { return node_rank * nproc + local_rank; }
};

// Returns the value of --elastic in the command, if that is one of this program's own; "": none.
std::string elastic_of(const std::vector<std::string>& command);

// Throws UsageError and io::ConfigError. If hosts are given, the node rank is 0.
LaunchPlan make_launch_plan(const LaunchOptions& options);

// Returns "rank,node,device,threads,address", then one line per rank of the job.
std::string plan_table(const LaunchPlan& plan, const LaunchOptions& options);

// Returns the whole environment of a worker, as "K=V": that of this process, without variables that
// describe this process itself as a worker, then the variables of the run, then --env. `extra`
// comes before --env.
std::vector<std::string> worker_environment(const LaunchPlan& plan, int local_rank, int attempt,
                                            const std::vector<std::string>& extra,
                                            const std::vector<std::string>& from_user);

}  // namespace tools
