// Who am I? Rank, world and meeting place from flags and launcher variables, each with the source it came from.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace backends {

// What the command line or config said; empty where it said nothing.
struct IdentityRequest {
  std::string init_method;  // "" = env://
  std::optional<int> rank, world_size, local_rank;
};

struct ResolvedValue {
  std::string value;   // "" = unknown
  std::string source;  // "--rank", "RANK", "SLURM_PROCID", "default"
};

struct Identity {
  int rank = 0, world_size = 1, local_rank = 0, local_world_size = 1, node_rank = 0;
  std::string init_method;  // fully resolved: tcp://HOST:PORT or file:///PATH; "" when the world is 1
  ResolvedValue rank_from, world_from, local_rank_from, local_world_from, node_rank_from, master_addr_from, master_port_from;
  std::vector<std::string> warnings;  // one line each, for the user
};

using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

// Throws ConfigurationError that names the variable, its value and what was expected; two sources that contradict each
// other are an error that names both.
Identity resolve_identity(const IdentityRequest& request, const Environment& environment);

}  // namespace backends
