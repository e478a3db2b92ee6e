// Runs every collective on two backends and compares the results bit by bit, for tests and for
// networks under suspicion.
#pragma once

#include <memory>
#include <string>

#include "backends/communicator.h"

namespace backends {

// The results are those of `first`. A difference throws a MismatchError that names the operation
// and the first differing byte. REQUIRES: both have the same ranks in the same order.
std::unique_ptr<Communicator> make_checked_communicator(std::string name,
                                                        std::unique_ptr<Communicator> first,
                                                        std::unique_ptr<Communicator> second);

}  // namespace backends
