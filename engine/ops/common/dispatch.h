// Which of an operator's three versions runs: the CUDA kernel, the fast one for the CPU, or the
// plain reference. Every x.cc chooses here and nowhere else.
#pragma once

#include "engine/core/cuda.h"
#include "engine/core/dtype.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// Calls cuda() for a CUDA device, else cpu(). In builds without CUDA cuda() is compiled, so that it
// cannot rot, but never called nor linked: pass a lambda, not the address of a function.
template <class Cpu, class Cuda>
auto dispatch_device(Device::Kind device, Cpu cpu, [[maybe_unused]] Cuda cuda) {
  if constexpr (engine::cuda::kBuilt) {
    if (device == Device::Kind::kCuda) return cuda();
  }
  return cpu();
}

// Calls reference() for f64, else cpu(): for what is computed in host memory only.
template <class Reference, class Cpu>
auto dispatch_dtype(DType dtype, Reference reference, Cpu cpu) {
  return dtype == DType::kF64 ? reference() : cpu();
}

// Calls, with no arguments, the version for the context's device and `dtype`, that of the operands
// that decide (activations): cuda() on a CUDA device whatever the dtype; on the CPU reference() for
// f64 and cpu() for f32. cpu() calls through isa_table_of_x(), which chooses the instruction set.
// Operators whose reference is all that the CPU has pass it twice, for float and double.
template <class Reference, class Cpu, class Cuda>
auto dispatch(const KernelContext& context, DType dtype, Reference reference, Cpu cpu, Cuda cuda) {
  return dispatch_device(
      context.device.kind, [&] { return dispatch_dtype(dtype, reference, cpu); }, cuda);
}

}  // namespace engine::ops
