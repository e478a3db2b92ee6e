// The communicator of a world of one rank: collectives have nothing to do.
#pragma once

#include <memory>

#include "backends/communicator.h"

namespace backends {

std::unique_ptr<Communicator> make_single_communicator();

}  // namespace backends
