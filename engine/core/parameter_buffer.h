// Holds all parameters of a model in one allocation and all gradients in another, in the order in
// which backward completes the gradients. Averaging, updates and digests work on spans of these.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/arena.h"
#include "engine/core/tensor_layout.h"
#include "engine/core/tensor_view.h"

namespace engine {

struct NamedLayout {
  std::string name;  // "layer1.0.weight"
  TensorLayout layout;
  DType dtype = DType::kF32;  // parameters: the buffer's dtype
};

// Tensors of one dtype stored end to end, each aligned to 64 bytes; the gaps stay zero.
class FlatBuffer {
 public:
  struct Slot {
    std::string name;
    TensorLayout layout;
    std::int64_t offset;  // in elements from the start of the buffer
    std::int64_t count;   // elements, without the gap
  };

  FlatBuffer() = default;
  // Every tensor's dtype must be `dtype`. The memory is zero-filled. A null `source` selects memory
  // of the device's runtime.
  FlatBuffer(DType dtype, const std::vector<NamedLayout>& tensors, Device device = {},
             const MemorySource* source = nullptr);
  // Returns zero-filled memory with the same slots (e.g. an optimizer's state for the parameters).
  static FlatBuffer like(const FlatBuffer& other) { return like(other, other.device()); }
  static FlatBuffer like(const FlatBuffer& other, Device device);

  DType dtype() const { return dtype_; }
  std::int64_t size() const { return size_; }  // elements, including gaps
  std::span<const Slot> slots() const { return slots_; }
  std::optional<std::size_t> find(std::string_view name) const;  // returns the slot of this name
  void* data() const { return arena_.data(); }
  std::size_t bytes() const { return static_cast<std::size_t>(size_) * size_of(dtype_); }
  Device device() const { return arena_.device(); }

  TensorView view(std::size_t slot) const;  // in memory shape
  TensorView flat() const;                  // everything including gaps, as one row
  TensorView part(std::int64_t first, std::int64_t count) const;  // a range of elements, as one row
  // REQUIRES: T is the dtype.
  template <class T>
  std::span<T> span() const {
    require(DTypeOf<T>::value == dtype_, "flat buffer read as another dtype");
    return {reinterpret_cast<T*>(arena_.data()), static_cast<std::size_t>(size_)};
  }

 private:
  DType dtype_ = DType::kF32;
  std::vector<Slot> slots_;
  std::int64_t size_ = 0;
  Arena arena_;
};

// Values, and gradients with the same slots except for those at the end whose parameters are
// frozen: operations on gradients skip these.
struct ParameterBuffer {
  ParameterBuffer() = default;
  // The last `frozen` of the tensors have no gradients.
  ParameterBuffer(DType dtype, const std::vector<NamedLayout>& in_completion_order,
                  Device device = {}, std::size_t frozen = 0)
      : values(dtype, in_completion_order, device),
        gradients(dtype,
                  {in_completion_order.begin(),
                   in_completion_order.end() - static_cast<std::ptrdiff_t>(frozen)},
                  device) {}

  // The number of elements before the frozen ones, in a buffer with the slots of `values`
  // or with other slots.
  std::int64_t trained_elements(const FlatBuffer& buffer) const;

  FlatBuffer values;
  FlatBuffer gradients;
};

}  // namespace engine
