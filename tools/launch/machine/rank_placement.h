// Assigns CPUs to each rank of a host, and to each of its threads (`--bind`).
#pragma once

#include <string>
#include <vector>

#include "io/base/machine/cpu_affinity.h"
#include "tools/launch/machine/cpu_topology.h"
#include "tools/options/table/device_request.h"

namespace tools {

const char* option_text(Bind bind);  // e.g. "--bind core"

// The needs of one rank of the host.
struct RankNeed {
  int rank = 0;       // in the group, for messages
  base::CpuSet cpus;  // CPUs that its process may use
  int threads = 0;    // threads of its pool; 0: as many as its share has, at most `max_threads`
  int max_threads = 1;
};

struct RankPlacement {
  base::CpuSet share;                 // CPUs of the rank, for all its threads
  std::vector<base::CpuSet> threads;  // CPUs of the pool's threads, the calling thread first
  std::string text;                   // e.g. "CPUs 0-3, one core per thread"
};

// Places the rank at `own` among those of its host, which are in rank order. Ranks that may use the
// same CPUs share them. With kCore each takes neighboring cores, equally many, and threads take a
// second hardware thread of a core only if the rank has more threads than cores. With kNuma ranks
// are spread evenly over nodes. Only the process's CPUs are used. REQUIRES: bind is not kNone.
// Throws io::ConfigError if a rank has more threads than its share has CPUs (kCore), if the allowed
// CPUs of two ranks overlap but differ, and if the topology lacks one of them.
RankPlacement place_rank(Bind bind, const CpuTopology& topology, const std::vector<RankNeed>& host,
                         std::size_t own);

}  // namespace tools
