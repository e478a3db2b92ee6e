// All parameters of a model in one allocation, all gradients in another, in the order in which
// backward completes the gradients. What is averaged, stepped and digested is a span of these.
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

// Tensors of one dtype laid end to end, each starting on a 64-byte boundary; the gaps stay zero.
class FlatBuffer {
 public:
  struct Slot {
    std::string name;
    TensorLayout layout;
    std::int64_t offset;  // in elements from the start of the buffer
    std::int64_t count;   // elements without the gap
  };

  FlatBuffer() = default;
  // Every tensor's dtype must be `dtype`. Zero-filled. `source`: null for memory of the device's
  // own runtime.
  FlatBuffer(DType dtype, const std::vector<NamedLayout>& tensors, Device device = {},
             const MemorySource* source = nullptr);
  // Zero-filled memory with the same slots (an optimizer's state beside the parameters).
  static FlatBuffer like(const FlatBuffer& other);

  DType dtype() const { return dtype_; }
  std::int64_t size() const { return size_; }  // elements, gaps included
  std::span<const Slot> slots() const { return slots_; }
  std::optional<std::size_t> find(std::string_view name) const;  // the slot of this name
  void* data() const { return arena_.data(); }
  std::size_t bytes() const { return static_cast<std::size_t>(size_) * size_of(dtype_); }
  Device device() const { return arena_.device(); }

  TensorView view(std::size_t slot) const;  // in memory shape
  TensorView flat() const;                  // all of it, gaps included, as one row
  TensorView part(std::int64_t first, std::int64_t count) const;  // elements of it, as one row
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

// Values, and gradients with the same slots but for those at the end whose parameters are frozen:
// whatever works on gradients passes these by.
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

  // Of a buffer with the slots of `values`, or with others: elements before the frozen ones.
  std::int64_t trained_elements(const FlatBuffer& buffer) const;

  FlatBuffer values;
  FlatBuffer gradients;
};

}  // namespace engine
