// The backends of this build and the choice among them.
#pragma once

#include <span>
#include <string>

#include "backends/backend.h"

namespace backends {

std::span<const Backend> all_backends();

struct BackendChoice {
  const Backend* backend = nullptr;  // nullptr: one rank, nothing to exchange
  std::string name, reason;
};
// `name` or "auto", for a group of processes. Throws ConfigurationError when it is unknown, missing or for threads only.
BackendChoice choose_backend(const std::string& name, int world_size);

}  // namespace backends
