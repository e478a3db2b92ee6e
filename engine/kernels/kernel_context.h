// What every kernel gets besides its operands.
//
// Rules of all kernels in this folder
//  - Operands are dense TensorViews of one dtype: f32 runs the fast kernels, f64 the plain references.
//  - Activations are NHWC: [n, h, w, c]. Convolution weights lie HWIO in memory: [kh, kw, in, out]. Dense weights lie [out, in].
//  - `n` may be smaller than the batch that scratch was sized for, and may be 0: then outputs that are sums over the
//    batch are written as 0 (or left alone with Write::kAdd).
//  - Checks are done once, in x.cc, and throw ShapeError; what runs behind it trusts them.
//  - No kernel allocates. Results are the same bits in every run with the same number of threads.
#pragma once

#include <cstddef>
#include <span>

#include "engine/core/device.h"
#include "engine/core/thread_pool.h"

namespace engine {

struct KernelContext {
  Device device;
  ThreadPool* threads = nullptr;  // never null on the CPU
  std::span<std::byte> scratch;   // 64-byte aligned, free for each kernel call; at least what x_scratch_bytes() asked for
};

// Whether a result replaces what is in the output or is added to it.
enum class Write { kOverwrite, kAdd };

}  // namespace engine
