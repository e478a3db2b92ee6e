// Memory beside the state of a device: its mirror in host memory, pinned, copies on the device from
// before a step, and the memory with which a policy averages.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "engine/averaging/math/device_math.h"
#include "engine/averaging/math/state_home.h"
#include "engine/core/arena.h"
#include "engine/core/cuda.h"
#include "engine/core/parameter_buffer.h"
#include "engine/graph/model_state.h"
#include "engine/ops/optim_step/device_step.h"

namespace engine {

// Pins memory during the lifetime of this object.
class PinnedBuffer {
 public:
  PinnedBuffer(const FlatBuffer& buffer, bool wanted)
      : memory_(wanted && buffer.bytes() > 0 ? buffer.data() : nullptr) {
    if (memory_ != nullptr) cuda::pin(memory_, buffer.bytes());
  }
  ~PinnedBuffer() {
    if (memory_ != nullptr) cuda::unpin(memory_);
  }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

 private:
  void* memory_;
};

// A copy on the device of the state that a step changes before its update.
class StateBackup {
 public:
  StateBackup(const FlatBuffer& buffer, bool wanted)
      : buffer_(buffer), copy_(wanted ? buffer.bytes() : 0, buffer.device(), "parameters") {}
  void keep(void* stream) { copy(copy_.data(), buffer_.data(), stream); }
  void put_back(void* stream) { copy(buffer_.data(), copy_.data(), stream); }
  void put_back_if_skipped(KernelContext& context, const StepControl* control) {
    if (copy_.bytes() == 0) return;
    const TensorView to = buffer_.flat();
    TensorView from = to;
    from.data = copy_.data();
    ops::restore_if_skipped(context, control, from, to);
  }

 private:
  void copy(void* to, const void* from, void* stream) const {
    if (copy_.bytes() > 0) cuda::copy_async(to, from, copy_.bytes(), stream);
  }

  const FlatBuffer& buffer_;
  Arena copy_;
};

// Copies of all that a step changes before its update: statistics, and the errors of a sum of
// gradients.
class StepBackup {
 public:
  // Statistics are kept if this is `wanted`.
  StepBackup(const ModelState& model, bool wanted)
      : running_(model.running, wanted), counters_(model.counters, wanted) {}
  void add_error(const FlatBuffer& error) { errors_.emplace_back(error, true); }

  void keep(void* stream) {
    running_.keep(stream);
    counters_.keep(stream);
    for (StateBackup& error : errors_) error.keep(stream);
  }
  void put_back(void* stream) {
    running_.put_back(stream);
    counters_.put_back(stream);
    for (StateBackup& error : errors_) error.put_back(stream);
  }
  // The errors stay: a skipped step was summed.
  void put_back_if_skipped(KernelContext& context, const StepControl* control) {
    running_.put_back_if_skipped(context, control);
    counters_.put_back_if_skipped(context, control);
  }

 private:
  StateBackup running_, counters_;
  std::deque<StateBackup> errors_;
};

// The averagings that calculate with the state of a device: their calculations, and the memory of
// the policy there. One thread at a time; without start() nothing calculates there. Memory is
// allocated on the current device.
class DeviceAveraging {
 public:
  // Collective if the parts have a communicator. All parts must outlive this.
  DeviceMath& start(const DeviceMathParts& parts) { return math_.emplace(parts); }
  // Returns null before start().
  DeviceMath* math() { return math_ ? &*math_ : nullptr; }

  // Allocates the home of a policy's memory, which must outlive this.
  void add(const HomeMemory& memory, Device device) {
    if (!math_) return;
    for (const HomeBuffer& host : memory.buffers) {
      const Buffer& added = buffers_.emplace_back(host, device);
      math_->add({host.buffer, &added.home});
    }
    wait_idle_ = memory.wait_idle;
  }

  // Called before the policy's memory is copied or a graph allocates memory: waits for exchanges of
  // other threads.
  void wait_idle() {
    if (math_ && wait_idle_) wait_idle_(*math_);
  }

  // Returns the memory of the errors of a sum of gradients, in the policy's order.
  std::vector<const FlatBuffer*> errors() const {
    std::vector<const FlatBuffer*> errors;
    for (const Buffer& buffer : buffers_)
      if (buffer.host.is_error) errors.push_back(&buffer.home);
    return errors;
  }

  // Visits the policy's memory that is part of the state: call(in host memory, on the device).
  template <class Call>
  void for_each_state(Call call) const {
    for (const Buffer& buffer : buffers_)
      if (buffer.host.is_state) call(*buffer.host.buffer, buffer.home);
  }

 private:
  struct Buffer {
    Buffer(const HomeBuffer& buffer, Device device)
        : host(buffer),
          pin(*buffer.buffer, buffer.exchanged),
          home(FlatBuffer::like(*buffer.buffer, device)) {}
    const HomeBuffer host;
    const PinnedBuffer pin;
    const FlatBuffer home;
  };

  std::deque<Buffer> buffers_;
  std::function<void(StateMath&)> wait_idle_;
  std::optional<DeviceMath> math_;
};

}  // namespace engine
