// Chooses how a rank computes: device, storage of activations, matrix products, loss scale.
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
  engine::DType storage = engine::DType::kF32;  // type of activations
  engine::Products products = engine::Products::kF32;
  engine::LossScaleRule loss_scale;
  bool graph = true, pinned = true, non_blocking = true;
  int threads = 1;  // in this rank's pool
  // On a CUDA device: waits yield the core (engine::cuda::block_in_waits()), since the rank has
  // only one.
  bool blocks = false;
  // The calling thread is bound while this exists; null: no thread is bound.
  std::shared_ptr<const RankBinding> binding;
  std::string reason;  // why `auto` chose this device; "" if it was named

  bool cuda() const { return device.kind == engine::Device::Kind::kCuda; }
  engine::ThreadPool make_pool(int shares = 0) const;  // `shares` as for the pool
  // Returns the CPUs for a base::BoundThread of the rank's thread while it computes, which must be
  // created after everything that starts threads; empty if it is not bound.
  base::CpuSet own_cpus() const { return binding ? binding->own_cpus() : base::CpuSet{}; }
};

// Collective over the group, through `control`, a communicator of all its ranks for host memory.
// The device is choose_device()'s (device_choice.h); ranks of one host have different ones. Creates
// no context on any device. Binds the calling thread if requested (rank_binding.h). Decides for the
// process if waits for its devices block. Throws io::ConfigError on all ranks for a combination
// that cannot be computed (engine::RemoteError if it is another rank's).
Compute choose_compute(const ComputeOptions& options, const backends::Group& group,
                       backends::Communicator& control);

// Large products of bf16 and f16 use sm_90a's warpgroup instructions where the device has them,
// unless ENGINE_WARPGROUP_PRODUCTS=0. Applies to the process.
void apply_warpgroup_switch();

// Makes a communicator for host memory, whatever the group's backend. Collective over `members`;
// empty: over the group.
std::unique_ptr<backends::Communicator> host_communicator(backends::Group& group,
                                                          const std::vector<int>& members = {});

// Returns e.g. "cuda:0 (NVIDIA H200, sm_90), bf16" for the start line of a run. On the CPU: threads
// and instruction set. `stored`: the plan's type of activations.
std::string compute_text(const Compute& compute, int threads, engine::DType stored);

}  // namespace tools
