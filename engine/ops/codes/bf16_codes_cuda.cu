// Flat loops, bound by bytes: encode_bf16() reads 8 and writes 6 per element of f32.
#include "engine/ops/codes/bf16_codes_cuda.h"

#include <cstdint>

#include "engine/ops/device/device_code.h"
#include "io/base/numbers/half.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ std::int64_t first_element() {
  return std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
}
__device__ __forceinline__ std::int64_t elements_at_once() {
  return std::int64_t{gridDim.x} * kThreads;
}

template <class T>
__global__ void encode_all(const T* values, std::int64_t count, T* error, base::bf16* codes) {
  for (std::int64_t i = first_element(); i < count; i += elements_at_once()) {
    const T owed = values[i] + error[i];
    const base::bf16 code = base::from_float<base::bf16>(static_cast<float>(owed));
    codes[i] = code;
    const T dropped = owed - static_cast<T>(base::to_float(code));
    error[i] = dropped - dropped == T(0) ? dropped : T(0);  // neither infinite nor NaN
  }
}

template <class T>
__global__ void decode_all(const base::bf16* codes, std::int64_t count, T* values) {
  for (std::int64_t i = first_element(); i < count; i += elements_at_once())
    values[i] = static_cast<T>(base::to_float(codes[i]));
}

template <class Call>
void with_number(DType dtype, Call call) {
  dtype == DType::kF64 ? call(double{}) : call(float{});
}

}  // namespace

void encode_bf16(KernelContext& context, TensorView values, TensorView error, TensorView codes) {
  const std::int64_t count = values.count();
  if (count == 0) return;
  with_number(values.dtype, [&]<class T>(T) {
    launch("encode_bf16", encode_all<T>, {loop_blocks(count, kThreads)}, kThreads, 0,
           context.stream, values.as<T>(), count, error.as<T>(), codes.as<base::bf16>());
  });
}

void decode_bf16(KernelContext& context, TensorView codes, TensorView values) {
  const std::int64_t count = values.count();
  if (count == 0) return;
  with_number(values.dtype, [&]<class T>(T) {
    launch("decode_bf16", decode_all<T>, {loop_blocks(count, kThreads)}, kThreads, 0,
           context.stream, codes.as<base::bf16>(), count, values.as<T>());
  });
}

}  // namespace engine::ops::cuda
