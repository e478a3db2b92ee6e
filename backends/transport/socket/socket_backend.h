// Our own TCP protocol: a mesh of connections, and schedules that both ends know, so that data
// needs no requests or headers.
#pragma once

#include <memory>

#include "backends/backend.h"

namespace backends {

// Collective over the ranks of the context.
std::unique_ptr<Communicator> make_socket_communicator(const BackendContext& context);

}  // namespace backends
