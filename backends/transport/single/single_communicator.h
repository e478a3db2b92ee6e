// Makes the communicator of a world of one rank, whose collectives do nothing.
#pragma once

#include <memory>

#include "backends/communicator.h"

namespace backends {

std::unique_ptr<Communicator> make_single_communicator();

}  // namespace backends
