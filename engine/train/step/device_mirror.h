// The state of a device with its mirror in host memory, and the control of its steps.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "backends/communicator.h"
#include "engine/core/arena.h"
#include "engine/core/cuda.h"
#include "engine/core/parameter_buffer.h"
#include "engine/graph/model_state.h"
#include "engine/ops/optim_step/device_step.h"
#include "engine/optim/optimizer.h"
#include "engine/train/step/device_copies.h"

namespace engine {

// The control of steps in device memory, and pinned memory on its way there and back. Calls enqueue
// copies on the stream; the host reads and writes the pinned memory while no copy is in progress.
class ControlMemory {
 public:
  explicit ControlMemory(Device device)
      : device_(sizeof(StepControl), device, "workspace"), host_(sizeof(StepControl)) {}

  StepControl* device() const { return reinterpret_cast<StepControl*>(device_.data()); }
  void fetch(void* stream) const {
    cuda::copy_async(host_.data(), device_.data(), sizeof(StepControl), stream);
  }
  StepControl fetched() const {
    StepControl control;
    std::memcpy(&control, host_.data(), sizeof control);
    return control;
  }
  // Sends what was fetched, and skips the step if any rank skips its own. Collective.
  void agree_on_skip(backends::Communicator& ranks, void* stream) const {
    StepControl control = fetched();
    std::int64_t any = control.skip;
    ranks.all_reduce(&any, 1, DType::kI64, backends::ReduceOp::kMax);
    control.skip = static_cast<std::int32_t>(any);
    send(control, stream);
  }
  void send(const StepControl& control, void* stream) const {
    std::memcpy(host_.data(), &control, sizeof control);
    cuda::copy_async(device_.data(), host_.data(), sizeof control, stream);
  }

 private:
  Arena device_;
  cuda::PinnedMemory host_;
};

// Copies the state that a checkpoint stores. All parts must outlive the mirror.
class DeviceMirror {
 public:
  struct State {
    const ModelState& model;
    Optimizer& optimizer;
  };
  DeviceMirror(const State& host, const State& device, const DeviceAveraging& averaging)
      : host_(host), device_(device), averaging_(averaging) {}

  // Enqueue copies of the whole state on the stream.
  void to_host(void* stream) const {
    for_each_pair([&](const FlatBuffer& host, const FlatBuffer& device) {
      cuda::copy_async(host.data(), device.data(), host.bytes(), stream);
    });
  }
  void to_device(void* stream) const {
    for_each_pair([&](const FlatBuffer& host, const FlatBuffer& device) {
      cuda::copy_async(device.data(), host.data(), host.bytes(), stream);
    });
  }

  // Gives averagings the states of the optimizer and the running statistics.
  void add_to(DeviceMath& math) const {
    const std::vector<Optimizer::State> here = host_.optimizer.state(),
                                        there = device_.optimizer.state();
    for (std::size_t i = 0; i < here.size(); ++i) math.add({here[i].buffer, there[i].buffer});
    math.add({&host_.model.running, &device_.model.running});
  }

 private:
  template <class Call>
  void for_each_pair(Call call) const {
    call(host_.model.parameters.values, device_.model.parameters.values);
    call(host_.model.running, device_.model.running);
    call(host_.model.counters, device_.model.counters);
    const std::vector<Optimizer::State> here = host_.optimizer.state(),
                                        there = device_.optimizer.state();
    for (std::size_t i = 0; i < here.size(); ++i) call(*here[i].buffer, *there[i].buffer);
    averaging_.for_each_state(call);
  }

  const State host_, device_;
  const DeviceAveraging& averaging_;
};

}  // namespace engine
