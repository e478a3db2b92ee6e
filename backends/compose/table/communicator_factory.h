// From a plan to a communicator: one backend, two compared, or two composed.
#pragma once

#include <memory>
#include <vector>

#include "backends/compose/table/backend_table.h"

namespace backends {

// Collective over the context's ranks, of which members[r] is rank r. May throw any std::exception.
std::unique_ptr<Communicator> create_communicator(const BackendPlan& plan,
                                                  const BackendContext& context,
                                                  const std::vector<PeerInfo>& members);

}  // namespace backends
