// How many threads a rank computes with, and why.
#pragma once

#include <string>

#include "backends/group.h"
#include "backends/identity/identity.h"

namespace tools {

struct ThreadChoice {
  int threads = 1;
  std::string source;
};

// The cores that this process may use, or fewer when SLURM gave the task fewer
// (SLURM_CPUS_PER_TASK), shared among the ranks that have to share them; at least 1.
// `allowed_cores` 0: ask the kernel.
ThreadChoice choose_threads(int local_world_size, const backends::Environment& environment,
                            int allowed_cores = 0);
int default_threads(int local_world_size);
// Throws io::ConfigError for --threads above eight times the cores that this process may use: each
// step would wait for threads that wait for a core. `allowed_cores` as above.
void check_threads(int threads, int allowed_cores = 0);
// The same for a rank of a group, which shares its host with the ranks that are there too.
int default_threads(const backends::Group& group);

}  // namespace tools
