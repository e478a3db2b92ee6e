// Binds a rank to its CPUs while it computes (`--bind`).
#pragma once

#include <functional>
#include <vector>

#include "backends/group.h"
#include "tools/launch/machine/rank_placement.h"

namespace tools {

struct HostNeeds {
  std::vector<RankNeed> ranks;  // all ranks of one host, in their order
  std::size_t own = 0;          // index of the calling rank
};
// Gathers the needs of the ranks on this rank's host; `own` is this rank's need. Collective over
// the group, through `control`.
HostNeeds gather_needs(RankNeed own, const backends::Group& group, backends::Communicator& control);

// Constructed and destroyed in the rank's own thread. Binds that thread, and threads started later,
// to the rank's share. Within that share the pool's threads have their own places: threads that the
// pool starts take them by enter_pool(), and the rank's thread takes its place by a
// base::BoundThread to own_cpus(), after all helper threads have been started.
class RankBinding {
 public:
  // Reads the host's topology. Throws as place_rank() and read_topology() do, and io::ConfigError
  // if the kernel refuses.
  RankBinding(Bind bind, const HostNeeds& needs);

  int threads() const { return static_cast<int>(placement_.threads.size()); }
  const base::CpuSet& own_cpus() const { return placement_.threads.front(); }
  std::function<void(int thread)> enter_pool() const;
  const std::string& text() const { return placement_.text; }

 private:
  const RankPlacement placement_;
  const base::BoundThread share_;
};

}  // namespace tools
