// Groups ranks by the identifiers of their hosts.
#include "backends/identity/host_layout.h"

#include <algorithm>
#include <string>

namespace backends {

std::vector<int> HostLayout::rail(int at) const {
  std::vector<int> ranks;
  for (const auto& host_ranks : hosts) ranks.push_back(host_ranks.at(static_cast<std::size_t>(at)));
  return ranks;
}

HostLayout host_layout(int rank, const std::vector<PeerInfo>& members) {
  HostLayout layout;
  std::vector<std::string> ids;
  for (std::size_t r = 0; r < members.size(); ++r) {
    const auto h =
        static_cast<std::size_t>(std::ranges::find(ids, members[r].host_id) - ids.begin());
    if (h == ids.size()) {
      ids.push_back(members[r].host_id);
      layout.hosts.emplace_back();
    }
    if (static_cast<int>(r) == rank) {
      layout.host = static_cast<int>(h);
      layout.place = static_cast<int>(layout.hosts[h].size());
    }
    layout.hosts[h].push_back(static_cast<int>(r));
  }
  for (const auto& ranks : layout.hosts)
    layout.even = layout.even && ranks.size() == layout.hosts.front().size();
  return layout;
}

}  // namespace backends
