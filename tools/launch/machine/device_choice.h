// Which device a rank computes on, and why; decided before anything is allocated on a device.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backends/group.h"
#include "backends/identity/identity.h"
#include "engine/core/device.h"
#include "io/checkpoint/device_map.h"
#include "io/gpu/usable_devices.h"
#include "tools/options/table/device_request.h"

namespace tools {

struct VisibleDevices {
  int count = 0;
  std::string missing = {};               // why there is none
  base::cuda::UnusedDevices unused = {};  // of these, those that kernels do not run on
};
VisibleDevices visible_devices();  // of this process; makes no context on any

struct DeviceChoice {
  engine::Device device;
  std::string reason;  // "local rank 1 of 2, 4 devices visible"
};

// What a process can tell before it meets the others: throws as choose_device() where the devices
// that are named are not here. Asks `visible` only where it matters.
void require_named_devices(const DeviceRequest& request,
                           const std::function<VisibleDevices()>& visible = visible_devices);

// The rank's own device of `devices`; cuda:N; else the device of its local rank, or the only one
// where the scheduler shows this process just one (CUDA_VISIBLE_DEVICES or SLURM_STEP_GPUS with one
// entry). Devices that kernels do not run on are passed over, and named in the reason. `auto`
// takes the CPU where no device is left, or for `cpu_only`, and says so; nothing else does. Throws
// io::ConfigError: no such device (with the number that is visible), or one that kernels do not run
// on, more ranks than devices on this host unless ENGINE_ALLOW_SHARED_GPU=1, `cuda_only` on the
// CPU, `cpu_only` on a CUDA device. Asks `visible` only where it matters.
DeviceChoice choose_device(const DeviceRequest& request, const backends::Environment& environment,
                           const std::function<VisibleDevices()>& visible);
// The same for this rank of the group, whose places `request` leaves open.
DeviceChoice choose_device(DeviceRequest request, const backends::Group& group);

// Where ranks come and go, local ranks change, and a rank that moved to another device would leave
// its context on the one that it had; or move to one that has just failed with its rank. So each
// has a place on its host for as long as it lives: `held`, else the lowest that nobody holds.
// Collective over the group.
int place_on_host(std::optional<int> held, const backends::Group& group,
                  backends::Communicator& control);

// Collective over the group: throws io::ConfigError on every rank where two of them, on one host,
// chose the same CUDA device, unless ENGINE_ALLOW_SHARED_GPU=1 is set on rank 0.
void check_devices_apart(const DeviceChoice& choice, const backends::Group& group,
                         backends::Communicator& control);

// --map-location: where an array goes that was saved on `saved`, for a rank that computes on `own`
// where `visible` CUDA devices are. Arrays are read to host memory in any case, and go from there
// to the rank's own device, never through another: so the answer is `own`, or a CPU, from which a
// CUDA device is then filled. Throws io::ConfigError where the map says anything else, naming the
// target and what there is.
engine::Device place_array(const io::DeviceMap& map, const std::string& saved, engine::Device own,
                           int visible);

// The CUDA devices of this process for people: "cuda:0 NVIDIA H200, 139.8 GiB, compute
// capability 9.0"; and beside them the versions of runtime and driver, or why there is none.
std::vector<std::string> gpu_lines();
std::string gpu_note();

}  // namespace tools
