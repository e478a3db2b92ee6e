// Runs a rank's steps on a CUDA device. The model's state is on the device; the state in host
// memory, which the rest of the engine accesses through a HostView, is a mirror.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/communicator.h"
#include "engine/averaging/math/device_math.h"
#include "engine/averaging/sums/device_sum.h"
#include "engine/graph/device_executor.h"
#include "engine/optim/optimizer.h"
#include "engine/train/step/device_shards.h"
#include "engine/train/step/step_work.h"

namespace engine {

// The way of batches to the device, as in DeviceExecutorOptions.
struct BatchTransfer {
  bool pinned = true, non_blocking = true;
  const ResidentSamples* resident = nullptr;
};

struct DeviceAveragingOptions {
  bool wanted = false;  // averagings of the state calculate on the device
  backends::DeviceCommunicator* communicator = nullptr;  // makes their sums; null: in host memory
  std::optional<CodedParameters> codes = {};             // of changes of parameters
};

struct DeviceWorkOptions {
  Device device;
  std::uint64_t seed = 0;
  std::int64_t micro_batches = 1;
  Products products = Products::kF32;
  LossScaleRule loss_scale;
  StepControl* control = nullptr;  // in host memory: part of the mirror; must outlive the work
  bool graph = true;               // captures the step if possible
  BatchTransfer transfer = {};
  // A step that fails because of another rank can be rolled back (StepWork::rollback_step()): its
  // update is issued only when the sums are known to be complete, for which the host waits.
  bool supports_rollback = false;
  // The host waits for the device at the end of a step, so that StepPhases::own() is the rank's own
  // work. Events on the device measure its waits for other ranks.
  bool measured = false;
  // A step that loss scaling skips leaves running statistics and counters as they were.
  bool restores_skipped = false;
  std::vector<float> image_table = {};  // not empty: batches contain bytes (DeviceExecutorOptions)
  ReplicaExchange* replicas = nullptr;  // null: no layer exchanges statistics
  // Exchanges the statistics on the device instead, beside a sum of gradients on the device; null:
  // they pass through host memory. Used by nothing else in a step.
  backends::DeviceCommunicator* statistics = nullptr;
  // Empty: gradients stay local, or are summed in host memory.
  std::function<std::unique_ptr<DeviceGradientSum>(const FlatBuffer& gradients)> make_sum = {};
  // Canonical order: the step is computed as shards, whose sums replace those of make_sum.
  std::optional<DeviceShardsOptions> shards = {};
  MemorySource gradient_memory = {};  // empty: the device's own memory
  backends::Communicator* agreement =
      nullptr;  // in host memory: ranks agree on skipped steps if gradients are not summed
  DeviceAveragingOptions averaging = {};
  std::function<std::unique_ptr<Optimizer>(const FlatBuffer& values)> make_optimizer = {};
};

// `plan` is for the device and the maximum number of samples of a micro-batch, of a shard's in
// canonical order. `host` and
// `host_optimizer` are the mirror; all arguments must outlive the work. The thread that creates the
// work must make all its calls. All memory is allocated here; the first step reads the state from
// the mirror. Throws CudaError.
std::unique_ptr<StepWork> make_device_work(const Plan& plan, ModelState& host,
                                           Optimizer& host_optimizer,
                                           const DeviceWorkOptions& options);

}  // namespace engine
