// Makes the communicator of backends that provide links for the direct exchange.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "backends/transport/direct/links.h"

namespace backends {

// `links` are connected. They are kept until all ranks have left, because others may still be
// reading the last messages. `name` is static text.
std::unique_ptr<Communicator> make_direct_communicator(const char* name,
                                                       const BackendContext& context,
                                                       std::shared_ptr<Links> links);

}  // namespace backends
