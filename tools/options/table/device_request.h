// The user's request for a rank's device, CPUs and memory (`--device`, `--bind`, `--memory`,
// `--data-on-device`).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/device.h"

namespace tools {

struct DeviceName {
  enum class Kind {
    kAuto,  // a CUDA device if there is one
    kCpu,
    kCuda,      // that of the local rank
    kNumbered,  // cuda:N
  };
  Kind kind = Kind::kAuto;
  int number = 0;  // with kNumbered

  bool operator==(const DeviceName&) const = default;
};
std::optional<DeviceName> parse_device_name(std::string_view text);  // "cuda:1"
std::string to_string(DeviceName name);
// "cpu:0" or "cuda:3", with a number below 1024 in its one spelling.
std::optional<engine::Device> parse_numbered_device(std::string_view text);

struct DeviceRequest {
  DeviceName device = {};
  // The devices of the process, one for each of its replicas; empty: one, by `device`.
  std::vector<engine::Device> devices = {};
  int replica = 0;                      // in `devices`
  int local_rank = 0, local_world = 1;  // among the ranks of this host
  std::optional<int> place = {};        // of place_on_host(), in place of the local rank
  // Options that only one kind of devices can do: "--amp O1", "--weight-dtype bf16".
  std::optional<std::string> cuda_only = {}, cpu_only = {};

  // Return true if the user named a device of that kind.
  bool names_cpu() const;
  bool names_cuda() const;
  std::string named_text() const;  // "cuda:1": the first of those that the user named
};

// The memory that a rank may use, of the host or of its device.
struct MemoryRequest {
  std::uint64_t bytes = 0;  // 0: not limited
  bool automatic = false;   // most of what is free
};

// The place of training samples for steps on a CUDA device.
enum class DataOnDevice {
  kAuto,  // on the device, if they fit beside the plan
  kOn,
  kOff,  // in host memory
};

enum class Bind {
  kNone,
  kCore,  // binds each thread of a pool to a core, or to a hardware thread of one
  kNuma,  // binds all threads of a rank to the CPUs of a NUMA node
};

}  // namespace tools
