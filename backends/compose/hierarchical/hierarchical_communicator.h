// Two stages: first among the ranks of a host, then across hosts.
//
// Reductions: within each host (in the order of its ranks), then over hosts (in the order of their
// first ranks). The bits are the same on all ranks and in all runs, but sums of floats are
// rounded differently from a flat fold over all ranks. Large ones, if all hosts have equally many
// ranks: reduce-scatter within the host, every rank all-reduces its slice with its counterparts of
// the other hosts, then the slices are shared within the host: each byte leaves a host once. Small
// ones, and hosts with unequal numbers of ranks: one leader per host, its first rank.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/communicator.h"
#include "backends/group.h"

namespace backends {

// The hosts of a communicator's ranks.
struct HostLayout {
  std::vector<std::vector<int>>
      hosts;  // ranks of each host, ascending; hosts in the order of their first ranks
  int host = 0, place = 0;  // this rank is hosts[host][place]
  bool even = true;         // all hosts have equally many ranks

  const std::vector<int>& local_ranks() const { return hosts[static_cast<std::size_t>(host)]; }
  std::vector<int> rail(
      int place) const;  // the ranks at this place of each host. REQUIRES: every host has it
};
// members[r] is rank r.
HostLayout host_layout(int rank, const std::vector<PeerInfo>& members);

// `within` connects this host's ranks. `across` connects the rail of this rank's place if
// `layout.even`, else that of place 0 (nullptr on ranks at other places).
std::unique_ptr<Communicator> make_hierarchical_communicator(std::string name, HostLayout layout,
                                                             std::unique_ptr<Communicator> within,
                                                             std::unique_ptr<Communicator> across);

}  // namespace backends
