// Memory beside the state of a device: its mirror in host memory, pinned, and copies on the device
// from before a step.
#pragma once

#include <cstddef>

#include "engine/core/arena.h"
#include "engine/core/cuda.h"
#include "engine/core/parameter_buffer.h"
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

}  // namespace engine
