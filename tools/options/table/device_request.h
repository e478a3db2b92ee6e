// The user's request for a rank's device and CPUs (`--device`, `--devices`, `--bind`).
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tools {

struct DeviceRequest {
  std::string device = "auto";  // auto, cpu, cuda, cuda:N
  // For the process, one for each of its replicas; empty: one, given by `device`.
  std::vector<std::string> devices = {};
  int replica = 0;                      // index in `devices`
  int local_rank = 0, local_world = 1;  // among the ranks of this host
  std::optional<int> place = {};        // from place_on_host(); replaces the local rank
  std::string amp = "off";
  std::string cpu_only = "";  // an option that CUDA does not support, "--dtype f64"; "": none
};

enum class Bind {
  kNone,
  kCore,  // binds each thread of a pool to a core, or to a hardware thread of one
  kNuma,  // binds all threads of a rank to the CPUs of a NUMA node
};

}  // namespace tools
