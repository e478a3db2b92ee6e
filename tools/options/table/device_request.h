// What the user asks for of a rank's device and CPUs (`--device`, `--devices`, `--bind`).
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tools {

struct DeviceRequest {
  std::string device = "auto";  // auto, cpu, cuda, cuda:N
  std::vector<std::string> devices =
      {};           // of the process, one for each of its replicas; empty: one, by `device`
  int replica = 0;  // in `devices`
  int local_rank = 0, local_world = 1;  // among the ranks of this host
  std::optional<int> place = {};        // of place_on_host(), in place of the local rank
  std::string amp = "off";
  std::string cpu_only = "";  // an option that CUDA devices cannot do, "--dtype f64"; "": none
};

enum class Bind {
  kNone,
  kCore,  // each thread of a pool to a core, or to a hardware thread of one
  kNuma,  // all threads of a rank to the CPUs of a NUMA node
};

}  // namespace tools
