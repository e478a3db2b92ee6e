// Converts operands of the fast CPU kernels to pointers and counts. TensorView's own functions are
// inline and therefore not allowed in sources that are compiled once per instruction set
// (cpu_dispatch.h): these read its members, and call Shape::count(), which is compiled once.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/stored.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {

// Returns nullptr if the operand is absent. REQUIRES: the operand has this dtype; x.cc has checked
// it.
ENGINE_INLINE float* floats(const TensorView& operand) { return static_cast<float*>(operand.data); }
ENGINE_INLINE Stored* stored(const TensorView& operand) {
  return static_cast<Stored*>(operand.data);
}
ENGINE_INLINE double* doubles(const TensorView& operand) {
  return static_cast<double*>(operand.data);
}
ENGINE_INLINE std::int32_t* integers(const TensorView& operand) {
  return static_cast<std::int32_t*>(operand.data);
}

ENGINE_INLINE std::int64_t count(const TensorView& operand) { return operand.shape.count(); }

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
