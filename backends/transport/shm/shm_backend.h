// The backend for shared memory between processes of one host.
#pragma once

#include <memory>

#include "backends/backend.h"

namespace backends {

// Collective over the context's ranks, which must all be on one host.
std::unique_ptr<Communicator> make_shm_communicator(const BackendContext& context);

}  // namespace backends
