// Where and how a rank computes: device, storage of activations, matrix products, loss scale.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/group.h"
#include "engine/core/device.h"
#include "engine/core/dtype.h"
#include "engine/core/thread_pool.h"
#include "engine/ops/common/kernel_context.h"
#include "engine/ops/optim_step/step_numbers.h"
#include "tools/launch/machine/rank_binding.h"
#include "tools/options/table/session_options.h"

namespace tools {

struct Compute {
  engine::Device device;
  engine::DType storage = engine::DType::kF32;  // of activations
  engine::Products products = engine::Products::kF32;
  engine::LossScaleRule loss_scale;
  bool graph = true, pinned = true, non_blocking = true;
  int threads = 1;  // of this rank's pool
  // On a CUDA device: waits give the core away (engine::cuda::block_in_waits()), since the rank has
  // a single one.
  bool blocks = false;
  // While it lives the calling thread is bound; null: no thread is.
  std::shared_ptr<const RankBinding> binding;
  std::string reason;  // why `auto` took this device; "" where it was named

  bool cuda() const { return device.kind == engine::Device::Kind::kCuda; }
  // Of what is computed on the host, whatever the device.
  engine::Products host_products() const { return cuda() ? engine::Products::kF32 : products; }
  engine::ThreadPool make_pool(int shares = 0) const;  // `shares` as the pool has them
  // For a base::BoundThread of the rank's thread while it computes, which comes after all that
  // starts threads; empty where it is not bound.
  base::CpuSet own_cpus() const { return binding ? binding->own_cpus() : base::CpuSet{}; }
};

// Collective over the group, by way of `control`, a communicator of all its ranks for host memory.
// The device is choose_device()'s (device_choice.h); ranks of one host have different ones. Makes
// no context on any device. Binds the calling thread where that is asked for (rank_binding.h).
// Decides for the process whether waits for its devices block.
// Throws io::ConfigError for a combination that cannot be computed, on all ranks
// (engine::RemoteError where it is another's).
Compute choose_compute(const ComputeOptions& options, const backends::Group& group,
                       backends::Communicator& control);

// Lets large products of bf16 and f16 use sm_90a's warpgroup instructions where
// ENGINE_WARPGROUP_PRODUCTS=1: off otherwise, as they have not run on a device yet. The calling
// thread's device counts. Throws engine::cuda::CudaError where it has none.
void apply_warpgroup_switch();

// For host memory, whatever the group's backend is for. Collective over `members`; empty: over the
// group.
std::unique_ptr<backends::Communicator> host_communicator(backends::Group& group,
                                                          const std::vector<int>& members = {});

// "cuda:0 (NVIDIA H200, sm_90), bf16": for the line that a run starts with. On the CPU: threads and
// instruction set. `stored`: the plan's, of activations.
std::string compute_text(const Compute& compute, int threads, engine::DType stored);

}  // namespace tools
