// Divides cores among ranks.
#include "tools/launch/machine/thread_choice.h"

#include <algorithm>

#include "backends/identity/slurm_launcher.h"
#include "io/base/files/io_error.h"
#include "io/base/machine/cpu_affinity.h"

namespace tools {

ThreadChoice choose_threads(int local_world_size, const backends::Environment& environment,
                            int allowed_cores) {
  const int cores = allowed_cores > 0 ? allowed_cores : base::count_of_cpus(),
            ranks = std::max(1, local_world_size);
  const std::string limit = allowed_cores > 0 ? "" : base::cpu_limit_text();
  ThreadChoice choice{std::max(1, cores / ranks),
                      (limit.empty() ? "the cores that this process may use" : limit) +
                          ", shared by the ranks of the host"};
  const backends::ResolvedValue per_task = backends::variable(environment, "SLURM_CPUS_PER_TASK");
  if (per_task.value.empty()) return choice;
  // A task of a SLURM step has its own cores, but may have started several ranks.
  const auto step = backends::slurm_step_claim(environment);
  const int tasks = step && !step->local_world_size.value.empty()
                        ? std::max(1, std::stoi(step->local_world_size.value))
                        : 1;
  const int ranks_of_task = std::max(1, ranks / tasks);
  const int given = backends::whole_number(per_task, 1, 1 << 20, "a number of cores, 1 or more");
  choice.threads = std::max(1, std::min(given, cores) / ranks_of_task);
  choice.source = per_task.source;
  if (given > cores)
    choice.source +=
        "=" + per_task.value + ", but this process may use only " + std::to_string(cores);
  if (ranks_of_task > 1) choice.source += ", shared by " + std::to_string(ranks_of_task) + " ranks";
  return choice;
}

void check_threads(int threads, int allowed_cores) {
  constexpr int kMaxOnACore = 8;
  const int cores = allowed_cores > 0 ? allowed_cores : base::count_of_cpus();
  if (threads <= kMaxOnACore * cores) return;
  throw io::ConfigError("--threads is " + std::to_string(threads) + ", but this process may use " +
                        std::to_string(cores) + (cores == 1 ? " core" : " cores") +
                        "; expected at most " + std::to_string(kMaxOnACore * cores) + ", better " +
                        std::to_string(cores));
}

int default_threads(int local_world_size) {
  return choose_threads(local_world_size, backends::process_environment()).threads;
}

int default_threads(const backends::Group& group) {
  const auto& peers = group.peers();
  const std::string& host = peers.at(static_cast<std::size_t>(group.rank())).host;
  const auto here =
      std::ranges::count_if(peers, [&](const backends::PeerInfo& p) { return p.host == host; });
  return choose_threads(static_cast<int>(here), backends::process_environment()).threads;
}

}  // namespace tools
