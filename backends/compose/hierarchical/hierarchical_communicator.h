// Two stages: ranks of one host among themselves, then across hosts.
//
// Reductions: within each host (in the order of its ranks), then over hosts (in the order of their
// first ranks). So the bits are the same on all ranks and in all runs, but sums of floats differ in
// rounding from a flat fold over all ranks. Large ones, where all hosts have equally many ranks:
// reduce-scatter within the host, every rank all-reduces its slice with its counterparts of the
// other hosts, then the slices are shared within the host: each byte leaves a host once. Small ones
// and uneven hosts: the first rank of each host speaks for it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/communicator.h"
#include "backends/group.h"

namespace backends {

// Where the ranks of a communicator live.
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

// `within` joins this host's ranks, `across` the rail of this rank's place (`layout.even`) or of
// place 0: nullptr elsewhere.
std::unique_ptr<Communicator> make_hierarchical_communicator(std::string name, HostLayout layout,
                                                             std::unique_ptr<Communicator> within,
                                                             std::unique_ptr<Communicator> across);

}  // namespace backends
