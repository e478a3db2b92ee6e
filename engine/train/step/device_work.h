// A rank's steps on a CUDA device. The state of the model lives there; the one in host memory,
// which the rest of the engine sees through a HostView, is a mirror.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/communicator.h"
#include "engine/averaging/sums/device_sum.h"
#include "engine/graph/device_executor.h"
#include "engine/optim/optimizer.h"
#include "engine/train/step/step_work.h"

namespace engine {

struct DeviceWorkOptions {
  Device device;
  std::uint64_t seed = 0;
  std::int64_t micro_batches = 1;
  Products products = Products::kF32;
  LossScaleRule loss_scale;
  StepControl* control = nullptr;  // in host memory: part of the mirror; outlives the work
  bool graph = true;               // capture the step, where possible
  bool pinned = true, non_blocking = true;
  // A step that fails for another rank's sake can be taken back (StepWork::rollback_step()): its
  // update is issued only when the sums are known to be there, for which the host waits.
  bool supports_rollback = false;
  std::vector<float> image_table = {};  // not empty: batches carry bytes (DeviceExecutorOptions)
  ReplicaExchange* replicas = nullptr;  // null: no layer exchanges statistics
  // Empty: gradients stay this rank's, or are summed in host memory.
  std::function<std::unique_ptr<DeviceGradientSum>(const FlatBuffer& gradients)> make_sum = {};
  MemorySource gradient_memory = {};  // empty: the device's own
  backends::Communicator* agreement =
      nullptr;  // host memory: ranks agree on skipped steps where gradients stay apart
  std::function<std::unique_ptr<Optimizer>(const FlatBuffer& values)> make_optimizer = {};
};

// `plan` is for the device and the most samples of a micro-batch. `host` and `host_optimizer` are
// the mirror; all given outlives the work. The thread that makes the work makes all its calls.
// Allocates here; the first step takes the state from the mirror. Throws CudaError.
std::unique_ptr<StepWork> make_device_work(const Plan& plan, ModelState& host,
                                           Optimizer& host_optimizer,
                                           const DeviceWorkOptions& options);

}  // namespace engine
