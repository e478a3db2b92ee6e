// From --device, --amp and their like to what the engine takes.
#include "tools/compute_choice.h"

#include "engine/core/cuda_runtime.h"
#include "engine/kernels/cpu_dispatch.h"
#include "engine/optim/loss_scale.h"
#include "io/io_error.h"

namespace tools {
namespace {

void refuse_on_cuda(const io::RunConfig& config) {
  if (config.dtype == "f64") throw io::ConfigError("--dtype f64 computes on the CPU only: leave out --device cuda");
  if (config.canonical)
    throw io::ConfigError("--reduction-order canonical computes on the CPU only: leave out --device cuda, or use --deterministic");
  if (config.compress != "none")
    throw io::ConfigError("--compress " + config.compress + " sums gradients in host memory, which --device cuda does not do yet");
}

void choose_precision(const std::string& amp, Compute& compute) {
  using engine::DType;
  using engine::Products;
  if (amp == "tf32") compute.products = Products::kTf32;
  if (amp == "O1") compute.products = Products::kF16;
  if (amp == "O2") compute.storage = DType::kF16;
  if (amp == "bf16") compute.storage = DType::kBF16;
}

}  // namespace

Compute choose_compute(const io::RunConfig& config, const backends::Group&) {
  Compute compute;
  compute.storage = config.dtype == "f64" ? engine::DType::kF64 : engine::DType::kF32;
  if (config.device.starts_with("cuda")) compute.device = engine::parse_device(config.device);
  if (!compute.cuda()) return compute;
  refuse_on_cuda(config);
  if (const std::string missing = engine::cuda::missing(); !missing.empty())
    throw io::ConfigError("--device " + config.device + ": " + missing);
  choose_precision("off", compute);
  return compute;
}

std::string compute_text(const Compute& compute, int threads) {
  if (!compute.cuda())
    return std::to_string(threads) + (threads == 1 ? " thread" : " threads") + " on cpu (" +
           std::string(engine::kernels::to_string(engine::kernels::cpu_isa())) + ")";
  const engine::cuda::DeviceInfo info = engine::cuda::device_info(compute.device.index);
  return engine::to_string(compute.device) + " (" + info.name + ", sm_" + std::to_string(info.major) + std::to_string(info.minor) +
         ")";
}

}  // namespace tools
