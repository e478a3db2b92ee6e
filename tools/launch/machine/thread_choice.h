// Chooses the number of threads that a rank computes with, and gives the reason.
#pragma once

#include <string>

#include "backends/group.h"
#include "backends/identity/identity.h"

namespace tools {

struct ThreadChoice {
  int threads = 1;
  std::string source;
};

// Returns the cores that this process may use, or fewer if SLURM gave the task fewer
// (SLURM_CPUS_PER_TASK), divided among the ranks that share them; at least 1. `allowed_cores` 0:
// asks the kernel.
ThreadChoice choose_threads(int local_world_size, const backends::Environment& environment,
                            int allowed_cores = 0);
int default_threads(int local_world_size);
// Throws io::ConfigError for --threads above eight times the cores that this process may use,
// because each step would wait for threads that wait for a core. `allowed_cores` as above.
void check_threads(int threads, int allowed_cores = 0);
// Does the same for a rank of a group, which shares its host with the other ranks there.
int default_threads(const backends::Group& group);

}  // namespace tools
