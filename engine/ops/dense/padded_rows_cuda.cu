// A thread writes 16 bytes at a time and reads them element by element: whole lines of the cache,
// with its neighbors. Bound: bytes.
#include "engine/ops/dense/padded_rows_cuda.h"

#include "engine/ops/device/packs.h"
#include "engine/ops/device/storage_dispatch.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kRowBytes = 128;

std::int64_t padded_columns(std::int64_t columns, DType dtype) {
  const auto each = static_cast<std::int64_t>(size_of(dtype));
  return divide_up(columns * each, kRowBytes) * kRowBytes / each;
}

// `chunks` is the number of 16-byte chunks per row of `to`.
template <class T>
__global__ void __launch_bounds__(kThreads)
    pad_rows(const T* from, std::int64_t columns, std::int64_t chunks, std::int64_t count, T* to) {
  constexpr int kChunk = Packed<T>::kCount;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    const std::int64_t row = quotient(i, chunks), first = (i - row * chunks) * kChunk;
    const T* at = from + row * columns + first;
    Packed<T> chunk;
#pragma unroll
    for (int j = 0; j < kChunk; ++j) chunk.at[j] = first + j < columns ? at[j] : from_float<T>(0);
    store_packed(to + i * kChunk, chunk);
  }
}

}  // namespace

std::size_t padded_rows_bytes(std::int64_t rows, std::int64_t columns, DType dtype) {
  constexpr std::int64_t kLeast = std::int64_t{1} << 20;
  const auto each = static_cast<std::int64_t>(size_of(dtype));
  if (rows * columns < kLeast || columns * each % 16 == 0) return 0;
  return static_cast<std::size_t>(rows * padded_columns(columns, dtype) * each);
}

PaddedRows padded_rows(KernelContext& context, TensorView matrix) {
  const std::int64_t rows = matrix.shape[0], columns = matrix.shape[1];
  const std::size_t bytes = padded_rows_bytes(rows, columns, matrix.dtype);
  if (bytes == 0) return {matrix.data, columns, context.scratch};
  require(context.scratch.size() >= bytes, "scratch of padded rows");
  const std::int64_t pitch = padded_columns(columns, matrix.dtype);
  with_storage(matrix.dtype, [&]<class T>(T) {
    const std::int64_t chunks = pitch / Packed<T>::kCount;
    launch("pad_rows", pad_rows<T>, {loop_blocks(rows * chunks, kThreads)}, kThreads, 0,
           context.stream, matrix.as<T>(), columns, chunks, rows * chunks,
           reinterpret_cast<T*>(context.scratch.data()));
  });
  return {context.scratch.data(), pitch, context.scratch.subspan(bytes)};
}

}  // namespace engine::ops::cuda
