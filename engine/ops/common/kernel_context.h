// Defines the context that every kernel receives besides its operands.
//
// Rules of all kernels in this folder
//  - Operands are dense TensorViews of one dtype: f32 runs the fast kernels, f64 the plain
//    references. Some kernels also accept bf16 on the CPU (check_stored()) for activations and
//    their gradients; all other operands are then f32.
//  - Activations are NHWC: [n, h, w, c]. Convolution weights are HWIO in memory: [kh, kw, in, out].
//    Dense weights are [out, in].
//  - `n` may be smaller than the batch that scratch was sized for, and may be 0: then outputs that
//    are sums over the batch are written as 0 (or left unchanged with Write::kAdd).
//  - x.cc makes all checks once and throws ShapeError; the code below it relies on them.
//  - On a CUDA device (cuda/) calls only enqueue work on the context's stream. Activations and
//    their gradients, and parameters of two or more dimensions, are all f32, all bf16, all f16 or
//    all f64; vectors of parameters, statistics, losses and every gradient of a parameter are f32,
//    or f64 if activations are. Host memory is not accessed, and values that change from step to
//    step are read from device memory, so that a step can be captured as a graph.
//  - No kernel allocates. Results have the same bits in every run with the same number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/core/device.h"
#include "engine/core/thread_pool.h"

namespace engine {

// The arithmetic of matrix products of f32 operands. Operands of bf16 and f16 are multiplied
// without rounding. Sums are always f32.
enum class Products : std::uint8_t {
  kF32,   // float32 arithmetic
  kTf32,  // tensor cores, operands rounded to 10 bits of fraction
  kF16,   // tensor cores, operands rounded to binary16
  kBF16,  // operands rounded to bfloat16: tensor cores; on the CPU AVX512_BF16
};

// Determines if CUDA devices of a compute capability have instructions for such products; others
// compute them in float32 arithmetic.
constexpr bool device_has(Products products, int major) {
  return products == Products::kF32 || major >= (products == Products::kF16 ? 7 : 8);
}

// The algorithm of f32 convolutions on the CPU.
enum class Convolutions : std::uint8_t {
  kAuto,    // Winograd's method for shapes for which it is faster (conv2d/winograd_rule.h)
  kDirect,  // plain sums of products
};

// The first token id or label that a kernel found out of range. It is in device memory, and the
// host reads it later.
struct DeviceFault {
  std::int32_t found = 0;  // 1: `value` at index `at` of the operand is outside [0, limit)
  std::int32_t value = 0;
  std::int64_t at = 0, limit = 0;
};

struct KernelContext {
  Device device;
  ThreadPool* threads = nullptr;   // never null on the CPU
  std::span<std::byte> scratch{};  // 64-byte aligned, free for each kernel call; has at least
                                   // x_scratch_bytes()

  Convolutions convolutions = Convolutions::kAuto;
  Products products = Products::kF32;  // on the CPU kF32 or kBF16

  // Only for a CUDA device.
  void* stream = nullptr;                // the cudaStream_t of all work
  const std::uint64_t* epoch = nullptr;  // in device memory: replaces the `epoch` of dropout
  DeviceFault* fault = nullptr;          // in device memory
};

inline bool on_cuda(const KernelContext& context) {
  return context.device.kind == Device::Kind::kCuda;
}

// Controls whether a result overwrites the output or is added to it.
enum class Write { kOverwrite, kAdd };

}  // namespace engine
