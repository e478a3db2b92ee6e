// The variables by which launchers tell a process its rank. One row a launcher; a further launcher is a further row.
#pragma once

namespace backends {

struct Launcher {
  const char* name;
  const char* rank;
  const char* world_size;
  const char* local_rank;  // nullptr: it has none
  const char* local_world_size;
  const char* node_rank;
};

// In order of precedence.
inline constexpr Launcher kLaunchers[] = {
    {"environment", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK"},
};

}  // namespace backends
