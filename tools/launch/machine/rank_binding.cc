// Exchanges masks, reads the topology and binds threads.
#include "tools/launch/machine/rank_binding.h"

#include <type_traits>

#include "backends/identity/host_layout.h"
#include "io/base/files/io_error.h"

namespace tools {

HostNeeds gather_needs(RankNeed own, const backends::Group& group,
                       backends::Communicator& control) {
  static_assert(std::is_trivially_copyable_v<RankNeed>);
  own.rank = group.rank();
  std::vector<RankNeed> all(static_cast<std::size_t>(group.world_size()), own);
  if (all.size() > 1) control.all_gather(&own, sizeof own, all.data());
  const backends::HostLayout layout = backends::host_layout(group);
  HostNeeds here{.ranks = {}, .own = static_cast<std::size_t>(layout.place)};
  for (const int rank : layout.local_ranks())
    here.ranks.push_back(all[static_cast<std::size_t>(rank)]);
  return here;
}

RankBinding::RankBinding(Bind bind, const HostNeeds& needs)
    : placement_(place_rank(bind, read_topology(option_text(bind)), needs.ranks, needs.own)),
      share_(placement_.share) {
  if (!share_.done())
    throw io::ConfigError(std::string(option_text(bind)) + ": the kernel does not bind rank " +
                          std::to_string(needs.ranks.at(needs.own).rank) + " to " +
                          placement_.text);
}

std::function<void(int)> RankBinding::enter_pool() const {
  return [places = placement_.threads](int thread) {
    // A part of the share, which the kernel has already accepted.
    base::set_cpus_of_this_thread(places.at(static_cast<std::size_t>(thread)));
  };
}

}  // namespace tools
