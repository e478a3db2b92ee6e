// What every kernel gets besides its operands.
//
// Rules of all kernels in this folder
//  - Operands are dense TensorViews of one dtype: f32 runs the fast kernels, f64 the plain
//  references. Some kernels also take bf16 on the CPU (check_stored()): activations and their
//  gradients, beside all else in f32.
//  - Activations are NHWC: [n, h, w, c]. Convolution weights lie HWIO in memory: [kh, kw, in, out].
//  Dense weights lie [out, in].
//  - `n` may be smaller than the batch that scratch was sized for, and may be 0: then outputs that
//  are sums over the
//    batch are written as 0 (or left alone with Write::kAdd).
//  - Checks are done once, in x.cc, and throw ShapeError; what runs behind it trusts them.
//  - On a CUDA device (cuda/) calls only put work on the context's stream. Activations and their
//  gradients, and parameters of
//    two or more dimensions, are all f32, all bf16 or all f16; vectors of parameters, statistics,
//    losses and every gradient of a parameter are f32. Host memory is not touched, and what changes
//    from step to step is read from device memory, so that a step can be captured as a graph.
//  - No kernel allocates. Results are the same bits in every run with the same number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/core/device.h"
#include "engine/core/thread_pool.h"

namespace engine {

// How matrix products of f32 operands are computed. Operands of bf16 and f16 are multiplied as they
// are. Sums are f32 in any case.
enum class Products : std::uint8_t {
  kF32,   // float32 arithmetic
  kTf32,  // tensor cores, operands rounded to 10 bits of fraction
  kF16,   // tensor cores, operands rounded to binary16
  kBF16,  // operands rounded to bfloat16: tensor cores; on the CPU AVX512_BF16
};

// How convolutions of f32 are computed on the CPU.
enum class Convolutions : std::uint8_t {
  kAuto,    // by Winograd's method at shapes where it is faster (conv2d/winograd_rule.h)
  kDirect,  // as plain sums of products
};

// Token ids and labels that a kernel found out of range; the first one is kept. In device memory,
// read by the host later.
struct DeviceFault {
  std::int32_t found = 0;  // 1: `value` at place `at` of the operand is outside [0, limit)
  std::int32_t value = 0;
  std::int64_t at = 0, limit = 0;
};

struct KernelContext {
  Device device;
  ThreadPool* threads = nullptr;   // never null on the CPU
  std::span<std::byte> scratch{};  // 64-byte aligned, free for each kernel call; at least what
                                   // x_scratch_bytes() asked for

  Convolutions convolutions = Convolutions::kAuto;
  Products products = Products::kF32;  // on the CPU kF32 or kBF16

  // On a CUDA device only.
  void* stream = nullptr;                // cudaStream_t that all work goes to
  const std::uint64_t* epoch = nullptr;  // device memory: stands for the `epoch` of dropout
  DeviceFault* fault = nullptr;          // device memory
};

inline bool on_cuda(const KernelContext& context) {
  return context.device.kind == Device::Kind::kCuda;
}

// Whether a result replaces what is in the output or is added to it.
enum class Write { kOverwrite, kAdd };

}  // namespace engine
