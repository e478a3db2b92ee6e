// Selects devices from options, launchers' variables and CUDA's list.
#include "tools/launch/machine/device_choice.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

#include "backends/identity/host_layout.h"
#include "engine/core/cuda.h"
#include "io/base/files/io_error.h"
#include "io/gpu/usable_devices.h"

namespace tools {
namespace {

using engine::Device;

constexpr const char* kShared = "ENGINE_ALLOW_SHARED_GPU";

std::string devices_text(int count) {
  return std::to_string(count) + (count == 1 ? " CUDA device" : " CUDA devices");
}

std::string visible_devices_text(const VisibleDevices& visible) {
  return visible.count == 0 ? visible.missing
                            : devices_text(visible.count) + (visible.count == 1 ? " is" : " are") +
                                  " visible to this process";
}

bool may_share(const backends::Environment& environment) {
  return environment(kShared).value_or("") == "1";
}

// Returns the variable with which a scheduler shows this process one device; "" if there is none.
std::string variable_of_one(const backends::Environment& environment) {
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS"}) {
    const std::string value = environment(name).value_or("");
    if (!value.empty() && value.find(',') == std::string::npos)
      return std::string(name) + "=" + value;
  }
  return "";
}

void require(Device device, const std::string& option, const VisibleDevices& visible) {
  if (device.kind != Device::Kind::kCuda) return;
  const std::string name = engine::to_string(device);
  if (device.index >= visible.count)
    throw io::ConfigError(option + ": there is no " + name + ", " + visible_devices_text(visible));
  if (const auto found = visible.unused.find(device.index); found != visible.unused.end())
    throw io::ConfigError(option + " " + name + ": " + base::cuda::unused_text({*found}));
}

std::string joined(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

[[noreturn]] void refuse_without_devices(const std::string& named, const VisibleDevices& visible) {
  throw io::ConfigError("--device " + named + ": " + visible.missing + "; give --device cpu");
}

DeviceChoice by_local_rank(const DeviceRequest& request, const backends::Environment& environment,
                           const VisibleDevices& visible) {
  if (visible.count == 0) refuse_without_devices(request.named_text(), visible);  // lost just now
  const std::string one = visible.count == 1 ? variable_of_one(environment) : "";
  if (!one.empty()) return {{Device::Kind::kCuda, 0}, "the one that " + one + " shows"};
  const std::vector<int> devices = base::cuda::used_devices(visible.count, visible.unused);
  const int count = static_cast<int>(devices.size());
  const std::string unused = base::cuda::unused_text(visible.unused);
  const std::string ranks = "local rank " + std::to_string(request.local_rank) + " of " +
                            std::to_string(request.local_world);
  if (request.local_world > count && !may_share(environment))
    throw io::ConfigError(
        "--device " + request.named_text() + ": " + std::to_string(request.local_world) +
        " ranks are on this host, but " + visible_devices_text(visible) +
        (unused.empty() ? "" : ", and " + unused) +
        "; start fewer ranks, have the scheduler assign each its own, or give --device cpu");
  std::string reason = ranks + ", " + devices_text(visible.count) + " visible";
  if (!unused.empty()) reason += "; " + unused;
  if (request.local_world > count) reason += ", shared";
  if (request.local_world == 1 && count > 1)
    reason += "; --gpu-devices " +
              (unused.empty() ? "0-" + std::to_string(count - 1) : joined(devices)) + " uses all";
  return {{Device::Kind::kCuda, devices[static_cast<std::size_t>(request.local_rank % count)]},
          reason};
}

// Returns how to give each rank of this host a device of its own.
std::string separation_text(const DeviceRequest& request, int local_world) {
  if (request.devices.empty()) {
    const bool numbered = request.device.kind == DeviceName::Kind::kNumbered;
    return numbered ? "give --device cuda, so that each rank takes the device of its local rank"
                    : "give each rank a device of its own";
  }
  std::vector<int> usable =
      base::cuda::used_devices(engine::cuda::device_count(), base::cuda::unused_devices());
  usable.resize(std::min(usable.size(), static_cast<std::size_t>(local_world)));
  const std::string count = std::to_string(usable.size());
  return "--gpu-devices lists the devices of each process: give --gpu-devices " + joined(usable) +
         " without --spawn (one process with " + count + " replicas), or --spawn " + count +
         " without --gpu-devices (a process for each device)";
}

std::string uuid_of(Device device) {
  return device.kind == Device::Kind::kCuda ? engine::cuda::device_info(device.index).uuid : "";
}

}  // namespace

VisibleDevices visible_devices() {
  return {engine::cuda::device_count(), engine::cuda::missing(), base::cuda::unused_devices()};
}

namespace {

// The GPU that the CPU emulates in tests is used on request: `auto` uses it only if a test sets the
// number of devices.
VisibleDevices visible_to_auto() {
#if defined(ENGINE_CUDA_EMULATED)
  if (std::getenv("ENGINE_EMULATED_GPUS") == nullptr)
    return {0, "this build has no CUDA, only its emulator for tests"};
#endif
  return visible_devices();
}

// A CUDA device, else the CPU.
DeviceChoice choose_by_itself(const DeviceRequest& request,
                              const backends::Environment& environment,
                              const std::function<VisibleDevices()>& visible) {
  const VisibleDevices seen = request.cpu_only ? VisibleDevices{} : visible();
  if (seen.count > 0) {
    DeviceChoice choice = by_local_rank(request, environment, seen);
    choice.reason = "auto: " + choice.reason;
    return choice;
  }
  const std::string why =
      request.cpu_only ? *request.cpu_only + " is computed on the CPU" : seen.missing;
  if (request.cuda_only) throw io::ConfigError(*request.cuda_only + " is for CUDA devices: " + why);
  return {{}, "auto: " + why};
}

}  // namespace

void require_named_devices(const DeviceRequest& request,
                           const std::function<VisibleDevices()>& visible) {
  const bool cuda = request.names_cuda();
  const VisibleDevices seen = cuda ? visible() : VisibleDevices{};
  for (const Device device : request.devices)
    require(device, cuda ? "--gpu-devices" : "--devices", seen);
  if (!request.devices.empty() || !cuda) return;
  if (seen.count == 0) refuse_without_devices(request.named_text(), seen);
  if (request.device.kind == DeviceName::Kind::kNumbered)
    require({Device::Kind::kCuda, request.device.number}, "--device", seen);
}

DeviceChoice choose_device(const DeviceRequest& request, const backends::Environment& environment,
                           const std::function<VisibleDevices()>& visible) {
  if (request.cpu_only && request.names_cuda())
    throw io::ConfigError(*request.cpu_only + " is computed on the CPU, not on " +
                          request.named_text() + "; leave one of them out");
  require_named_devices(request, visible);
  if (!request.devices.empty()) {
    const auto replica = static_cast<std::size_t>(request.replica) % request.devices.size();
    return {request.devices[replica], "device " + std::to_string(replica + 1) + " of the " +
                                          std::to_string(request.devices.size()) +
                                          " of this process"};
  }
  switch (request.device.kind) {
    case DeviceName::Kind::kCpu:
      return {{}, "--device cpu"};
    case DeviceName::Kind::kCuda:
      return by_local_rank(request, environment, visible());
    case DeviceName::Kind::kNumbered:
      return {{Device::Kind::kCuda, request.device.number}, "--device " + request.named_text()};
    case DeviceName::Kind::kAuto:
      return choose_by_itself(request, environment, visible);
  }
  return {};
}

DeviceChoice choose_device(const DeviceRequest& request) {
  const bool automatic = request.device.kind == DeviceName::Kind::kAuto && request.devices.empty();
  return choose_device(request, backends::process_environment(),
                       automatic ? visible_to_auto : visible_devices);
}

DeviceChoice choose_device(DeviceRequest request, const backends::Group& group) {
  const backends::HostLayout layout = backends::host_layout(group);
  request.local_world = layout.local_count();
  request.local_rank = request.place.value_or(layout.place);
  if (!request.devices.empty())
    request.replica = group.rank() % static_cast<int>(request.devices.size());
  return choose_device(request);
}

int place_on_host(std::optional<int> held, const backends::Group& group,
                  backends::Communicator& control) {
  constexpr std::int32_t kNone = -1;
  const auto& peers = group.peers();
  const auto own = static_cast<std::size_t>(group.rank());
  std::vector<std::int32_t> places(peers.size(), held.value_or(kNone));
  if (peers.size() > 1) {
    const std::int32_t mine = places[own];
    control.all_gather(&mine, sizeof mine, places.data());
  }
  std::set<std::int32_t> taken;
  const backends::HostLayout layout = backends::host_layout(group);
  const auto place = [&](int rank) -> std::int32_t& {
    return places[static_cast<std::size_t>(rank)];
  };
  for (const int r : layout.local_ranks())
    // The place of a rank that was temporarily out of the job may have been taken.
    if (place(r) != kNone && !taken.insert(place(r)).second) place(r) = kNone;
  for (const int r : layout.local_ranks()) {
    if (place(r) != kNone) continue;
    std::int32_t lowest = 0;
    while (!taken.insert(lowest).second) ++lowest;
    place(r) = lowest;
  }
  return places[own];
}

void check_devices_apart(const DeviceRequest& request, const DeviceChoice& choice,
                         const backends::Group& group, backends::Communicator& control) {
  const auto& peers = group.peers();
  if (peers.size() == 1) return;
  struct Word {
    char uuid[48];
    std::int32_t index, shared;
  };
  Word own{.uuid = {},
           .index = choice.device.index,
           .shared = may_share(backends::process_environment()) ? 1 : 0};
  const std::string uuid = uuid_of(choice.device);
  std::memcpy(own.uuid, uuid.data(), std::min(uuid.size(), sizeof own.uuid - 1));
  std::vector<Word> all(peers.size());
  control.all_gather(&own, sizeof own, all.data());
  if (all.front().shared != 0) return;
  for (std::size_t b = 1; b < all.size(); ++b)
    for (std::size_t a = 0; a < b; ++a) {
      if (all[a].uuid[0] == '\0' || std::strcmp(all[a].uuid, all[b].uuid) != 0 ||
          peers[a].host_id != peers[b].host_id)
        continue;
      throw io::ConfigError("ranks " + std::to_string(a) + " and " + std::to_string(b) +
                            " on host " + peers[a].host + " both chose the CUDA device " +
                            all[a].uuid + " (cuda:" + std::to_string(all[a].index) +
                            " and cuda:" + std::to_string(all[b].index) + "); " +
                            separation_text(request, backends::host_layout(group).local_count()));
    }
}

Device place_array(const io::DeviceMap& map, const std::string& saved, Device own, int visible) {
  const std::string own_name = engine::to_string(own), name = map.target(saved, own_name);
  const Device target = engine::parse_device(name);
  if (target.kind == Device::Kind::kCpu) return own.kind == Device::Kind::kCpu ? own : target;
  if (target == own) return own;
  const std::string start =
      "map-location sends arrays saved on " + saved + " to " + name + ", but ";
  if (target.index >= visible)
    throw io::ConfigError(start + "there is no " + name + ": " +
                          (visible == 0 ? std::string("no CUDA device is")
                                        : devices_text(visible) + (visible == 1 ? " is" : " are")) +
                          " visible, and this rank computes on " + own_name);
  throw io::ConfigError(start + "this rank computes on " + own_name +
                        " and can load arrays onto no other device (auto: its own)");
}

std::vector<std::string> gpu_lines() {
  std::vector<std::string> lines;
  const int count = base::cuda::listed_devices();
  const base::cuda::UnusedDevices unused = base::cuda::unused_devices();
  for (int i = 0; i < count; ++i) {
    lines.push_back("cuda:" + std::to_string(i) + " ");
    try {
      const engine::cuda::DeviceInfo info = engine::cuda::device_info(i);
      char numbers[96];
      std::snprintf(numbers, sizeof numbers, ", %.1f GiB, compute capability %d.%d, %d processors",
                    static_cast<double>(info.memory_bytes) / (1 << 30), info.major, info.minor,
                    info.processors);
      lines.back() += info.name + numbers + (unused.contains(i) ? ", not used" : "");
    } catch (const engine::cuda::CudaError& error) {  // the list continues after a broken device
      lines.back() += error.what();
    }
  }
  return lines;
}

std::string gpu_note() {
  try {
    const std::string missing = engine::cuda::missing();
    return missing.empty() ? "CUDA " + engine::cuda::versions() : missing;
  } catch (const engine::cuda::CudaError& error) {
    return error.what();
  }
}

}  // namespace tools
