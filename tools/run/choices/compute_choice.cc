// Converts --device, --amp and related options to the engine's types.
#include "tools/run/choices/compute_choice.h"

#include <cstdlib>
#include <string_view>
#include <utility>

#include "engine/core/cuda.h"
#include "engine/ops/common/bf16_dispatch.h"
#include "engine/ops/gemm/gemm_plan.h"
#include "engine/optim/loss_scale.h"
#include "io/gpu/usable_devices.h"
#include "tools/launch/machine/device_choice.h"
#include "tools/launch/machine/thread_choice.h"
#include "tools/run/choices/agreement.h"

namespace tools {
namespace {

// For a rank that waits by polling: one core for that, and one to prepare its batches.
constexpr int kCoresPerDevice = 2;

// Returns e.g. ", bf16", ", f16 products, loss scale dynamic".
std::string precision_text(const Compute& compute, engine::DType stored) {
  using engine::Products;
  std::string text;
  if (compute.storage != engine::DType::kF32)
    text += ", " + std::string(base::to_string(compute.storage));
  if (compute.products == Products::kTf32) text += ", tf32 products";
  if (compute.products == Products::kF16) text += ", f16 products";
  if (compute.products == Products::kBF16)
    text += stored == engine::DType::kBF16 ? ", bf16 products and activations" : ", bf16 products";
  if (compute.loss_scale.on()) text += ", loss scale " + engine::to_string(compute.loss_scale);
  return text;
}

// Throws io::ConfigError if this CPU lacks what --amp bf16 needs.
void check_on_cpu(const ComputeOptions& options, const std::string& reason) {
  const std::string why = reason.starts_with("auto") ? " (" + reason + ")" : "";
  if (options.precision.half != engine::DType::kBF16) return;
  if (const std::string missing = engine::ops::missing_bf16_products(); !missing.empty())
    throw io::ConfigError("--amp bf16 on the CPU: " + missing + "; give --amp off" + why);
}

}  // namespace

engine::ThreadPool Compute::make_pool(int shares) const {
  return engine::ThreadPool(threads, shares,
                            binding ? binding->enter_pool() : std::function<void(int)>{});
}

void apply_warpgroup_switch() {
  const char* wanted = std::getenv("ENGINE_WARPGROUP_PRODUCTS");
  if constexpr (engine::cuda::kBuilt)
    engine::ops::cuda::allow_warpgroup_products(wanted == nullptr ||
                                                std::string_view(wanted) != "0");
}

std::unique_ptr<backends::Communicator> host_communicator(backends::Group& group,
                                                          const std::vector<int>& members) {
  backends::CommunicatorRequest request;
  request.members = members;
  if (group.backend() == "nccl") request.backend = "auto";
  return group.make_communicator(request);
}

Compute choose_compute(const ComputeOptions& options, const backends::Group& group,
                       backends::Communicator& control) {
  DeviceChoice choice;
  run_on_all_ranks(group, control, [&] {
    choice = choose_device(options.device, group);
    static_cast<void>(engine::ops::cpu_isa());  // throws if ENGINE_ISA is not supported
    if (choice.device.kind == engine::Device::Kind::kCpu) check_on_cpu(options, choice.reason);
  });
  if (engine::cuda::kBuilt && group.world_size() > 1)
    check_devices_apart(options.device, choice, group, control);
  int cores = default_threads(group), threads = options.threads > 0 ? options.threads : cores;
  std::shared_ptr<const RankBinding> binding;
  if (options.bind != Bind::kNone) {
    const HostNeeds needs = gather_needs({.rank = group.rank(),
                                          .cpus = base::cpus_of_process(),
                                          .threads = options.threads,
                                          .max_threads = threads},
                                         group, control);
    run_on_all_ranks(group, control,
                     [&] { binding = std::make_shared<const RankBinding>(options.bind, needs); });
    threads = cores = binding->threads();
  }
  const bool cpu = choice.device.kind == engine::Device::Kind::kCpu,
             blocks = !cpu && cores < kCoresPerDevice;
  if (!cpu) engine::cuda::block_in_waits(blocks);
  return {.device = choice.device,
          .storage = cpu ? options.dtype : options.precision.half.value_or(options.dtype),
          .products =
              cpu && options.precision.half ? engine::Products::kBF16 : options.precision.products,
          .loss_scale = options.loss_scale,
          .graph = options.graph,
          .pinned = options.pinned,
          .non_blocking = options.non_blocking,
          .threads = threads,
          .blocks = blocks,
          .binding = std::move(binding),
          .reason = choice.reason.starts_with("auto") ? choice.reason : ""};
}

std::string compute_text(const Compute& compute, int threads, engine::DType stored) {
  const std::string reason = compute.reason.empty() ? "" : "; " + compute.reason;
  if (!compute.cuda())
    return std::to_string(threads) + (threads == 1 ? " thread" : " threads") + " on cpu (" +
           std::string(engine::ops::to_string(engine::ops::isa_of(compute.products))) + reason +
           ")" + precision_text(compute, stored);
  const engine::cuda::DeviceInfo info = engine::cuda::device_info(compute.device.index);
  const std::string code = base::cuda::code_text(compute.device.index);
  const engine::Products products =
      compute.storage == engine::DType::kBF16  ? engine::Products::kBF16
      : compute.storage == engine::DType::kF16 ? engine::Products::kF16
                                               : compute.products;
  const bool slow = !engine::device_has(products, info.major);
  return engine::to_string(compute.device) + " (" + info.name + ", sm_" +
         std::to_string(info.major) + std::to_string(info.minor) +
         (code.empty() ? "" : ", " + code) + reason +
         (slow ? "; without instructions for these products, computed in f32 arithmetic" : "") +
         (compute.blocks ? "; waits block, with one core" : "") + ")" +
         precision_text(compute, stored);
}

}  // namespace tools
