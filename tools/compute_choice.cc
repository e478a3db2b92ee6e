// From --device, --amp and their like to what the engine takes.
#include "tools/compute_choice.h"

#include "engine/core/cuda_runtime.h"
#include "engine/kernels/cpu_dispatch.h"
#include "engine/optim/loss_scale.h"
#include "tools/device_choice.h"

namespace tools {
namespace {

void choose_precision(const std::string& amp, Compute& compute) {
  using engine::DType;
  using engine::Products;
  if (amp == "tf32") compute.products = Products::kTf32;
  if (amp == "O1") compute.products = Products::kF16;
  if (amp == "O2") compute.storage = DType::kF16;
  if (amp == "bf16") compute.storage = DType::kBF16;
}

}  // namespace

Compute choose_compute(const io::RunConfig& config, backends::Group& group) {
  Compute compute;
  const DeviceChoice choice = choose_device(config, group);
  if (engine::cuda::kBuilt && group.world_size() > 1) check_devices_apart(choice, group, *group.make_communicator());
  compute.device = choice.device;
  compute.reason = choice.reason;
  compute.storage = config.dtype == "f64" ? engine::DType::kF64 : engine::DType::kF32;
  if (!compute.cuda()) return compute;
  choose_precision(config.amp, compute);
  compute.amp = config.amp;
  compute.loss_scale = engine::parse_loss_scale(config.loss_scale);
  compute.graph = config.cuda_graph;
  compute.pinned = config.pin_memory;
  compute.non_blocking = config.non_blocking;
  return compute;
}

std::string compute_text(const Compute& compute, int threads) {
  if (!compute.cuda())
    return std::to_string(threads) + (threads == 1 ? " thread" : " threads") + " on cpu (" +
           std::string(engine::kernels::to_string(engine::kernels::cpu_isa())) +
           (compute.reason.starts_with("auto") ? "; " + compute.reason : "") + ")";
  const engine::cuda::DeviceInfo info = engine::cuda::device_info(compute.device.index);
  std::string text = engine::to_string(compute.device) + " (" + info.name + ", sm_" + std::to_string(info.major) +
                     std::to_string(info.minor) + (compute.reason.empty() ? "" : "; " + compute.reason) + ")";
  if (compute.amp != "off") text += ", amp " + compute.amp;
  if (compute.loss_scale.on()) text += ", loss scale " + engine::to_string(compute.loss_scale);
  return text;
}

}  // namespace tools
