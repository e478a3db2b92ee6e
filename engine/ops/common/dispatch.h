// Selects one of an operator's three versions: the CUDA kernel, the fast CPU kernel, or the plain
// reference. Every x.cc selects only here.
#pragma once

#include "engine/core/cuda.h"
#include "engine/core/dtype.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// Calls cuda() for a CUDA device, otherwise cpu(). Builds without CUDA compile cuda() as a check
// but neither call nor link it: pass a lambda, not the address of a function.
template <class Cpu, class Cuda>
auto dispatch_device(Device::Kind device, Cpu cpu, [[maybe_unused]] Cuda cuda) {
  if constexpr (engine::cuda::kBuilt) {
    if (device == Device::Kind::kCuda) return cuda();
  }
  return cpu();
}

// Calls reference() for f64, otherwise cpu(): for computations in host memory only.
template <class Reference, class Cpu>
auto dispatch_dtype(DType dtype, Reference reference, Cpu cpu) {
  return dtype == DType::kF64 ? reference() : cpu();
}

// Calls, with no arguments, the version for the context's device and `dtype`, the dtype of the
// activations: cuda() on a CUDA device for any dtype; on the CPU reference() for f64 and cpu() for
// f32. cpu() calls through isa_table_of_x(), which selects the instruction set. Operators that have
// only the reference on the CPU pass it twice, for float and double.
template <class Reference, class Cpu, class Cuda>
auto dispatch(const KernelContext& context, DType dtype, Reference reference, Cpu cpu, Cuda cuda) {
  return dispatch_device(
      context.device.kind, [&] { return dispatch_dtype(dtype, reference, cpu); }, cuda);
}

}  // namespace engine::ops
