// The options of averagings that do not wait for late ranks.
#pragma once

#include <cstdint>

namespace engine {

struct StaleOptions {
  std::int64_t max_behind = 0;  // averagings that may close without a rank's change; 0: none
  // How long a rank waits for late ones, as a fraction of its time since the last averaging.
  double patience = 0.1;
};

}  // namespace engine
