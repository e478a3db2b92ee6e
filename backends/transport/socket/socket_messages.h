// Exchanges messages over a mesh of connections of its own, with one thread.
#pragma once

#include <chrono>
#include <memory>

#include "backends/backend.h"
#include "backends/transport/socket/messages.h"

namespace backends {

// Collective over the context's ranks. If a connection ends, waits at most `detection_time` for the
// failure detector to name the failed rank.
std::unique_ptr<Messages> make_socket_messages(const BackendContext& context,
                                               std::chrono::milliseconds detection_time);

}  // namespace backends
