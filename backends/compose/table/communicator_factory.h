// Makes the communicator of a plan: one backend, two compared, or two composed.
#pragma once

#include <memory>
#include <vector>

#include "backends/compose/table/backend_table.h"

namespace backends {

// Collective over the context's ranks; members[r] describes rank r. May throw any std::exception.
std::unique_ptr<Communicator> create_communicator(const BackendPlan& plan,
                                                  const BackendContext& context,
                                                  const std::vector<PeerInfo>& members);

}  // namespace backends
