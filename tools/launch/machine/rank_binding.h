// A rank bound to its CPUs, for as long as it computes (`--bind`).
#pragma once

#include <functional>
#include <vector>

#include "backends/group.h"
#include "tools/launch/machine/rank_placement.h"

namespace tools {

struct HostNeeds {
  std::vector<RankNeed> ranks;  // of one host, in their order
  std::size_t own = 0;          // which of them is the calling one
};
// What the ranks of this rank's host need; `own` is its need. Collective over the group, by way of
// `control`.
HostNeeds gather_needs(RankNeed own, const backends::Group& group, backends::Communicator& control);

// Made and ended in the rank's own thread. Binds it, and what it starts from then on, to the rank's
// share. Within that share the pool's threads have places of their own: those that the pool starts
// take them by enter_pool(), the rank's thread by a base::BoundThread to own_cpus(), as soon as all
// that helps it has been started.
class RankBinding {
 public:
  // Reads the host's topology. Throws as place_rank() and read_topology(), and io::ConfigError
  // where the kernel refuses.
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
