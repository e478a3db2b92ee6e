// Selects the device that a rank computes on; decided before anything is allocated on a device.
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
  std::string missing = {};               // why there is no device
  base::cuda::UnusedDevices unused = {};  // the devices among them that kernels do not run on
};
VisibleDevices visible_devices();  // devices of this process; creates no context

struct DeviceChoice {
  engine::Device device;
  std::string reason;  // e.g. "local rank 1 of 2, 4 devices visible"
};

// The check that a process can make before it meets the others: throws as choose_device() does if
// the named devices do not exist here. Calls `visible` only if it matters.
void require_named_devices(const DeviceRequest& request,
                           const std::function<VisibleDevices()>& visible = visible_devices);

// The rank's own device of `devices`; cuda:N; else the device of its local rank, or the only one
// if the scheduler shows this process just one (CUDA_VISIBLE_DEVICES or SLURM_STEP_GPUS with one
// entry). Devices that kernels do not run on are skipped, and named in the reason. Only `auto`
// chooses the CPU, with a notice, if no device is left or for `cpu_only`. Throws
// io::ConfigError: no such device (with the number that is visible), or one that kernels do not run
// on, more ranks than devices on this host unless ENGINE_ALLOW_SHARED_GPU=1, `cuda_only` on the
// CPU, `cpu_only` on a CUDA device. Calls `visible` only if needed.
DeviceChoice choose_device(const DeviceRequest& request, const backends::Environment& environment,
                           const std::function<VisibleDevices()>& visible);
// Does the same for this process alone.
DeviceChoice choose_device(const DeviceRequest& request);
// Does the same for this rank of the group, with the places that `request` does not specify.
DeviceChoice choose_device(DeviceRequest request, const backends::Group& group);

// Local ranks change when ranks join and leave, and a rank that moved to another device would leave
// its context on the old one, or might move to one that has just failed with its rank. So each rank
// keeps its place on its host: `held`, else the lowest free one. Collective over the group.
int place_on_host(std::optional<int> held, const backends::Group& group,
                  backends::Communicator& control);

// Collective over the group: throws io::ConfigError on every rank if two of them on one host chose
// the same CUDA device, unless ENGINE_ALLOW_SHARED_GPU=1 is set on rank 0. `request` has led to the
// choice, and determines the advice.
void check_devices_apart(const DeviceRequest& request, const DeviceChoice& choice,
                         const backends::Group& group, backends::Communicator& control);

// Implements --map-location: returns the device of an array that was saved on `saved`, for a rank
// that computes on `own` with `visible` CUDA devices. Arrays are always read to host memory, and
// copied from there to the rank's own device, never through another one: so the result is `own`, or
// a CPU, from which a CUDA device is then filled. Throws io::ConfigError for any other target, and
// names the target and the existing devices.
engine::Device place_array(const io::DeviceMap& map, const std::string& saved, engine::Device own,
                           int visible);

// Describe the CUDA devices of this process: "cuda:0 NVIDIA H200, 139.8 GiB, compute capability
// 9.0", and the versions of runtime and driver, or why there is none.
std::vector<std::string> gpu_lines();
std::string gpu_note();

}  // namespace tools
