// Resolves rank, world size and rendezvous address from flags and launcher variables, each with its
// source.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace backends {

// The rules that choose a rendezvous port if none is given (port_rule.h).
enum class PortRule { kAuto, kIdr, kJobId, kFixed };
std::string_view to_string(PortRule rule);
PortRule parse_port_rule(const std::string& text);  // throws ConfigurationError

// Values from the command line or config; empty: not given.
struct IdentityRequest {
  std::string init_method = {};  // "" = env://
  std::optional<int> rank = {}, world_size = {}, local_rank = {};
  PortRule port_rule = PortRule::kAuto;
  std::string job_id = {};  // "": the launcher's, if it has one
};

struct ResolvedValue {
  std::string value;   // "" = unknown
  std::string source;  // "--rank", "RANK", "SLURM_PROCID", "default"
};

struct Identity {
  int rank = 0, world_size = 1, local_rank = 0, local_world_size = 1, node_rank = 0;
  // Fully resolved: tcp://HOST:PORT or file:///PATH; "" if the world size is 1.
  std::string init_method;
  // Rank 0 may use this many ports from init_method's on; more than 1 only with a job id.
  int port_window = 1;
  ResolvedValue rank_from, world_from, local_rank_from, local_world_from, node_rank_from,
      master_addr_from, master_port_from;
  ResolvedValue job_from;             // identifies the job among those of the user; "": unknown
  std::vector<std::string> warnings;  // one line each, for the user

  std::optional<int> known_local_world_size() const {
    return local_world_from.source == "default" ? std::nullopt : std::optional(local_world_size);
  }
};

using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

// The order of precedence is: the request, RANK and so on, SLURM step, SLURM array (file:// only),
// Open MPI, PMI and, if these give no rank, PMIx, Kubernetes and torchrun's PET_*. Throws
// ConfigurationError that names the variable, its value and the expected form. Two sources that
// contradict each other are an error that names both, unless one launcher was started by the other.
Identity resolve_identity(const IdentityRequest& request, const Environment& environment);

}  // namespace backends
