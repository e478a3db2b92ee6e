// The hosts of the ranks of a group or of a communicator.
#pragma once

#include <cstddef>
#include <vector>

#include "backends/group.h"

namespace backends {

struct HostLayout {
  // The ranks of each host, ascending; hosts in the order of their first ranks.
  std::vector<std::vector<int>> hosts;
  int host = 0, place = 0;  // this rank is hosts[host][place]
  bool even = true;         // all hosts have equally many ranks

  // Returns the ranks of this rank's host.
  const std::vector<int>& local_ranks() const { return hosts[static_cast<std::size_t>(host)]; }
  int local_count() const { return static_cast<int>(local_ranks().size()); }
  // Returns the ranks at this place of each host. REQUIRES: every host has it.
  std::vector<int> rail(int place) const;
};
// members[r] describes rank r.
HostLayout host_layout(int rank, const std::vector<PeerInfo>& members);
inline HostLayout host_layout(const Group& group) {
  return host_layout(group.rank(), group.peers());
}
// Returns true if both ranks are on one host.
inline bool are_on_one_host(const Group& group, int a, int b) {
  const auto& peers = group.peers();
  return peers.at(static_cast<std::size_t>(a)).host_id ==
         peers.at(static_cast<std::size_t>(b)).host_id;
}

}  // namespace backends
