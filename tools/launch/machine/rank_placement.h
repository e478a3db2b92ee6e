// Which CPUs each rank of a host gets, and each of its threads (`--bind`).
#pragma once

#include <string>
#include <vector>

#include "io/base/machine/cpu_affinity.h"
#include "tools/launch/machine/cpu_topology.h"
#include "tools/options/table/device_request.h"

namespace tools {

const char* option_text(Bind bind);  // "--bind core"

// A rank of the host.
struct RankNeed {
  int rank = 0;       // in the group, for messages
  base::CpuSet cpus;  // that its process may use
  int threads = 0;    // of its pool; 0: as many as its share has, `max_threads` at most
  int max_threads = 1;
};

struct RankPlacement {
  base::CpuSet share;                 // of the rank, for all that it does
  std::vector<base::CpuSet> threads;  // of its pool, the calling thread first
  std::string text;                   // "CPUs 0-3, one core per thread"
};

// Of the rank at `own` among those of its host, which stand in the order of their ranks. Ranks that
// may use the same CPUs share them: with kCore each takes neighboring cores, as many as the
// others, and threads take hardware threads of a core that has a thread already only where the rank
// has more threads than cores; with kNuma ranks are spread evenly over nodes. Nothing outside the
// process's CPUs is used. REQUIRES: bind is not kNone. Throws io::ConfigError where a rank has more
// threads than its share has CPUs (kCore), where ranks may use different CPUs of which some are the
// same, and where the topology lacks one.
RankPlacement place_rank(Bind bind, const CpuTopology& topology, const std::vector<RankNeed>& host,
                         std::size_t own);

}  // namespace tools
