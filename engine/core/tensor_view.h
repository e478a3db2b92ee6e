// A typed, shaped, non-owning view of memory. It is always dense and row-major.
#pragma once

#include <cstddef>
#include <span>

#include "engine/core/device.h"
#include "engine/core/dtype.h"
#include "engine/core/error.h"
#include "engine/core/shape.h"

namespace engine {

struct TensorView {
  void* data = nullptr;  // nullptr: absent (an optional operand that is not given)
  DType dtype = DType::kF32;
  Shape shape;
  Device device;

  explicit operator bool() const { return data != nullptr; }
  std::int64_t count() const { return shape.count(); }
  std::size_t bytes() const { return static_cast<std::size_t>(count()) * size_of(dtype); }

  // REQUIRES: T is the view's dtype.
  template <class T>
  T* as() const {
    require(data == nullptr || dtype == DTypeOf<T>::value, "tensor read as another dtype");
    return static_cast<T*>(data);
  }
  template <class T>
  std::span<T> span() const {
    return {as<T>(), static_cast<std::size_t>(count())};
  }
};

}  // namespace engine
