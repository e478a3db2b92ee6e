// The backend for this project's TCP protocol: a mesh of connections, and schedules that both ends
// know, so that data needs no requests or headers.
#pragma once

#include <memory>

#include "backends/backend.h"

namespace backends {

// Collective over the context's ranks.
std::unique_ptr<Communicator> make_socket_communicator(const BackendContext& context);

}  // namespace backends
