// Each thread copies an element of a batch: of 16 bytes if all samples begin at a multiple of 16,
// else of 4 bytes or 1. Neighboring threads copy neighboring elements of a sample, so that reads
// and writes are whole lines. Bound by bytes.
#include "engine/ops/device/device_code.h"
#include "engine/ops/samples/gather_samples_cuda.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMaxBlocks = 132 * 16;  // for more elements, each thread copies several

struct alignas(16) SixteenBytes {
  std::uint32_t at[4];
};

unsigned blocks_for(std::int64_t elements) {
  const std::int64_t blocks = (elements + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
}

// `width`: elements per sample.
template <class T>
__global__ void __launch_bounds__(kThreads)
    copy_samples(const T* rows, const std::int64_t* ids, std::int64_t count, std::int64_t width,
                 T* out) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const std::int64_t sample = i / width;
    out[i] = rows[ids[sample] * width + (i - sample * width)];
  }
}

__global__ void __launch_bounds__(kThreads)
    copy_windows(const std::int32_t* stream, std::int64_t stride, const std::int64_t* ids,
                 std::int64_t count, std::int64_t width, std::int32_t* tokens, std::int32_t* next) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const std::int64_t window = i / width;
    const std::int32_t* from = stream + ids[window] * stride + (i - window * width);
    tokens[i] = from[0];
    next[i] = from[1];
  }
}

template <class T>
void launch_copy(const KernelContext& context, const GatherRows& o, std::int64_t row_bytes) {
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(T));
  const std::int64_t width = row_bytes / kBytes, count = o.out.shape[0] * width;
  launch("gather_rows", copy_samples<T>, {blocks_for(count)}, kThreads, 0, context.stream,
         static_cast<const T*>(o.rows.data), o.ids, count, width, static_cast<T*>(o.out.data));
}

}  // namespace

// REQUIRES: rows and out are aligned to 16 bytes, as all tensors in arenas are.
void gather_rows(KernelContext& context, const GatherRows& o) {
  if (o.out.count() == 0) return;
  const auto row_bytes = static_cast<std::int64_t>(o.out.bytes()) / o.out.shape[0];
  if (row_bytes % 16 == 0) return launch_copy<SixteenBytes>(context, o, row_bytes);
  if (row_bytes % 4 == 0) return launch_copy<std::uint32_t>(context, o, row_bytes);
  launch_copy<std::uint8_t>(context, o, row_bytes);
}

void gather_windows(KernelContext& context, const GatherWindows& o) {
  const std::int64_t count = o.tokens.count();
  if (count == 0) return;
  launch("gather_windows", copy_windows, {blocks_for(count)}, kThreads, 0, context.stream,
         o.stream.as<std::int32_t>(), o.stride, o.ids, count, count / o.tokens.shape[0],
         o.tokens.as<std::int32_t>(), o.next.as<std::int32_t>());
}

}  // namespace engine::ops::cuda
