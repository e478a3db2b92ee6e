// Makes the parts of composed communicators, each under its own prefix in the store.
#include "backends/compose/table/communicator_factory.h"

#include <algorithm>

#include "backends/compose/checked/checked_communicator.h"
#include "backends/compose/hierarchical/hierarchical_communicator.h"
#include "backends/compose/table/link_encryption.h"
#include "backends/transport/single/single_communicator.h"

namespace backends {
namespace {

// Returns the weights of the ranks of a part, which are one of each host, as those of the hosts.
BackendContext with_weights_of_hosts(BackendContext context, const HostLayout& layout) {
  if (context.sum_weights.empty()) return context;
  for (const std::vector<int>& ranks : layout.hosts) {
    std::uint32_t sum = 0;
    for (const int r : ranks) sum += context.sum_weights[static_cast<std::size_t>(r)];
    for (const int r : ranks) context.sum_weights[static_cast<std::size_t>(r)] = sum;
  }
  return context;
}

// Returns the context of a part that consists of these ranks of the communicator, including this
// one.
BackendContext part_of(const BackendContext& whole, const std::vector<int>& ranks,
                       const std::string& name) {
  BackendContext part = whole;
  part.prefix += "/" + name;
  part.world_size = static_cast<int>(ranks.size());
  part.members.clear();
  part.sum_weights.clear();
  for (const int r : ranks) {
    if (r == whole.rank) part.rank = static_cast<int>(part.members.size());
    part.members.push_back(whole.group_rank(r));
    if (!whole.sum_weights.empty())
      part.sum_weights.push_back(whole.sum_weights[static_cast<std::size_t>(r)]);
  }
  return part;
}

std::unique_ptr<Communicator> create_part(const Backend& backend, const BackendContext& whole,
                                          const std::vector<int>& ranks, const std::string& name) {
  if (ranks.size() == 1) return make_single_communicator();
  require_encryption(backend, whole.encryption);
  if (whole.relay != nullptr) require_relay(backend);
  return backend.create(part_of(whole, ranks, name));
}

std::unique_ptr<Communicator> create_hierarchical(const BackendPlan& plan,
                                                  const BackendContext& context,
                                                  const std::vector<PeerInfo>& members) {
  HostLayout layout = host_layout(context.rank, members);
  auto within = create_part(*plan.within, context, layout.local_ranks(),
                            "host/" + std::to_string(layout.host));
  // If all hosts have equally many ranks, each place on a host has its own communicator across
  // hosts; else only the first place has one.
  const int place = layout.even ? layout.place : 0;
  std::unique_ptr<Communicator> across;
  if (layout.place == place)
    across = create_part(*plan.across, with_weights_of_hosts(context, layout), layout.rail(place),
                         "rail/" + std::to_string(place));
  return make_hierarchical_communicator(plan.name, std::move(layout), std::move(within),
                                        std::move(across));
}

}  // namespace

std::unique_ptr<Communicator> create_communicator(const BackendPlan& plan,
                                                  const BackendContext& context,
                                                  const std::vector<PeerInfo>& members) {
  if (context.world_size == 1) return make_single_communicator();
  std::vector<int> all(members.size());
  for (std::size_t r = 0; r < all.size(); ++r) all[r] = static_cast<int>(r);
  if (plan.compared != nullptr)
    return make_checked_communicator(plan.name, create_part(*plan.across, context, all, "first"),
                                     create_part(*plan.compared, context, all, "second"));
  if (plan.across == nullptr) return create_part(*plan.within, context, all, "shm");
  if (plan.within == nullptr) return create_part(*plan.across, context, all, plan.across->name);
  return create_hierarchical(plan, context, members);
}

}  // namespace backends
