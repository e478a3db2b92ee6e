// Each block sums 64 columns of its part of the rows. It has 32 threads along the rows, each with 8
// adjacent columns (one or two 16-byte reads per row), whose sums are combined in shared memory in
// a fixed order. A second pass adds the parts in order. Bound by bytes.
#include "engine/ops/device/column_sums_cuda.h"

#include <algorithm>

#include "engine/ops/common/operand_checks.h"
#include "engine/ops/device/device_code.h"
#include "engine/ops/device/storage_dispatch.h"

namespace engine::ops::cuda {
namespace {

constexpr int kRun = 8, kAcross = 8, kDown = 32, kThreads = kAcross * kDown,
              kColumns = kRun * kAcross;

struct Parts {
  std::int64_t count, rows;  // rows per part
};

Parts parts_of(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kBlocks = 264, kMinRows = 8 * kDown;
  const std::int64_t most = std::max<std::int64_t>(1, kBlocks / divide_up(columns, kColumns));
  const std::int64_t count = std::clamp<std::int64_t>(divide_up(rows, kMinRows), 1, most);
  return {count, divide_up(rows, count)};
}

template <class N>
struct Joined {
  N sums[kDown][kColumns + 4];
};

// Writes the sums of part blockIdx.y to to[part * columns], or adds them to `to`.
template <class T>
__global__ void sum_rows(const T* from, std::int64_t rows, int columns, std::int64_t part_rows,
                         bool packed, bool add, Wide<T>* to) {
  auto& joined = block_shared<Joined<Wide<T>>>();
  const int across = static_cast<int>(threadIdx.x) % kAcross,
            down = static_cast<int>(threadIdx.x) / kAcross;
  const int first = static_cast<int>(blockIdx.x) * kColumns, column = first + across * kRun;
  const std::int64_t begin = blockIdx.y * part_rows,
                     end = begin + part_rows < rows ? begin + part_rows : rows;
  Wide<T> sums[kRun] = {};
  for (std::int64_t row = begin + down; row < end; row += kDown) {
    const T* at = from + row * columns + column;
    if (packed && column + kRun <= columns) {
      constexpr int kChunk = Packed<T>::kCount;
#pragma unroll
      for (int i = 0; i < kRun; i += kChunk) {
        const Packed<T> chunk = load_packed(at + i);
#pragma unroll
        for (int j = 0; j < kChunk; ++j) sums[i + j] += to_wide(chunk.at[j]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kRun; ++i)
        if (column + i < columns) sums[i] += to_wide(at[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kRun; ++i) joined.sums[down][across * kRun + i] = sums[i];
  __syncthreads();
  const int mine = static_cast<int>(threadIdx.x);
  if (mine >= kColumns || first + mine >= columns) return;
  Wide<T> total = 0;
  for (int d = 0; d < kDown; ++d) total += joined.sums[d][mine];
  Wide<T>* result = to + blockIdx.y * std::int64_t{columns} + first + mine;
  *result = add ? *result + total : total;
}

template <class N>
__global__ void sum_parts(const N* parts, int count, int columns, bool add, N* to) {
  const int column = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (column >= columns) return;
  N total = 0;
  for (int p = 0; p < count; ++p) total += parts[std::int64_t{p} * columns + column];
  to[column] = add ? to[column] + total : total;
}

}  // namespace

std::size_t column_sums_scratch_bytes(std::int64_t rows, std::int64_t columns, DType dtype) {
  const std::int64_t parts = parts_of(rows, columns).count;
  return parts > 1 ? static_cast<std::size_t>(parts * columns) * size_of(wide_dtype(dtype)) : 0;
}

void column_sums(KernelContext& context, const void* from, DType dtype, std::int64_t rows,
                 std::int64_t columns, void* to, Write write) {
  if (columns == 0) return;
  const Parts parts = parts_of(rows, columns);
  const bool split = parts.count > 1, add = write == Write::kAdd;
  const Grid grid{static_cast<unsigned>(divide_up(columns, kColumns)),
                  static_cast<unsigned>(parts.count)};
  with_any_storage(dtype, [&]<class T>(T) {
    using N = Wide<T>;
    N* first_to = split ? reinterpret_cast<N*>(context.scratch.data()) : static_cast<N*>(to);
    const bool packed =
        columns * sizeof(T) % 16 == 0 && reinterpret_cast<std::uintptr_t>(from) % 16 == 0;
    launch("column_sums", sum_rows<T>, grid, kThreads, sizeof(Joined<N>), context.stream,
           static_cast<const T*>(from), rows, static_cast<int>(columns), parts.rows, packed,
           add && !split, first_to);
    if (!split) return;
    launch("column_sums", sum_parts<N>, {static_cast<unsigned>(divide_up(columns, kThreads))},
           kThreads, 0, context.stream, first_to, static_cast<int>(parts.count),
           static_cast<int>(columns), add, static_cast<N*>(to));
  });
}

}  // namespace engine::ops::cuda
