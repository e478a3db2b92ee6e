// Starts and supervises the workers of this node, and restarts them after a failure that a restart
// may fix.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/launch/machine/memory_info.h"
#include "tools/launch/nodes/worker_logs.h"
#include "tools/launch/workers/handover.h"
#include "tools/launch/workers/worker_failure.h"

namespace tools {

class ControlLine;

class LocalNode {
 public:
  // Binds the rendezvous socket if this node has rank 0, and makes the secret of a job of one node.
  // `secret_hex`: the secret from a launch that controls this one, else "". Throws the exceptions
  // of backends and io.
  LocalNode(const LaunchOptions& options, LaunchPlan plan, GuardProcess& guard, SignalInbox& inbox,
            const std::string& secret_hex);

  // Runs the job to its end; prints the decisive failure as the last line, unless it is another
  // node's. Returns the exit code of this program. `control`: polled beside the workers; may be
  // nullptr.
  int run(ControlLine* control);

 private:
  GroupOutcome run_attempt(EventSource* control);
  bool all_are_here() const;
  GroupRules rules() const;
  // Opens the streams of a worker and returns the function that it runs, which owns its ends of
  // them; `err` becomes the stream of its stderr.
  std::function<int()> prepare_worker(OutputRelay& relay, int local_rank, int attempt,
                                      WorkerLogs::Stream& err);
  // For an elastic job: reports a worker that has failed and, if it is to be restarted, returns the
  // function that it runs.
  std::function<int()> respawn(OutputRelay& relay, int local_rank, const WorkerEnd& end,
                               WorkerLogs::Stream& err);
  bool hands_over(int local_rank) const;
  WorkerFailure failure_of(int local_rank, const WorkerEnd& end,
                           const WorkerLogs::Stream& err) const;
  int exec_worker(int local_rank, int attempt, const std::vector<std::string>& extra, int out,
                  int err) const;
  void prepare_meeting();
  backends::Socket listen_for_workers(const backends::Endpoint& wanted);
  void note_failure(const GroupOutcome& outcome, const std::vector<WorkerLogs::Stream>& errors);

  const LaunchOptions& options_;
  LaunchPlan plan_;
  GuardProcess& guard_;
  SignalInbox& inbox_;
  WorkerLogs logs_;
  const MemoryKills kills_;
  std::string program_;
  backends::Socket listener_;  // listening for own commands; only reserved for others
  std::unique_ptr<SecretFile> secret_;
  int attempt_ = 0;
  std::vector<int> respawned_;  // number of restarts of each worker
  std::optional<WorkerFailure> failure_;
};

// Returns the file that runs `name`, as execvp finds it. Throws UsageError if there is none.
std::string find_program(const std::string& name, const std::vector<std::string>& own_commands);

}  // namespace tools
