// Transposes samples through shared memory, in square tiles with sides of 128 bytes, so that both
// reads and writes are whole sectors. Rows of the tile are padded by one bank to avoid conflicts on
// both sides. Bound by bytes.
#include "engine/ops/device/packs.h"
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/elementwise/elementwise_cuda.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
struct Tile {
  static constexpr int kSide = 128 / static_cast<int>(sizeof(T));
  static constexpr int kStride = kSide + (sizeof(T) > 4 ? 1 : 4 / static_cast<int>(sizeof(T)));
  T at[kSide * kStride];
};

struct Matrices {
  std::int64_t rows, columns;
  std::int64_t row_tiles, column_tiles, tiles;  // per matrix, per matrix, total
};

template <class T>
__global__ void transpose(const T* from, Matrices m, bool add, T* to) {
  constexpr int kSide = Tile<T>::kSide, kStride = Tile<T>::kStride;
  Tile<T>& tile = block_shared<Tile<T>>();
  for (std::int64_t t = blockIdx.x; t < m.tiles; t += gridDim.x) {
    const std::int64_t across = quotient(t, m.column_tiles), sample = quotient(across, m.row_tiles);
    const std::int64_t row = (across - sample * m.row_tiles) * kSide,
                       column = (t - across * m.column_tiles) * kSide;
    const T* source = from + sample * m.rows * m.columns;
    T* target = to + sample * m.rows * m.columns;
    __syncthreads();  // the previous tile has been written
    for (int i = static_cast<int>(threadIdx.x); i < kSide * kSide; i += kThreads) {
      const int r = i / kSide, c = i % kSide;
      if (row + r < m.rows && column + c < m.columns)
        tile.at[r * kStride + c] = source[(row + r) * m.columns + column + c];
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kSide * kSide; i += kThreads) {
      const int c = i / kSide, r = i % kSide;
      if (row + r >= m.rows || column + c >= m.columns) continue;
      T& place = target[(column + c) * m.rows + row + r];
      const T value = tile.at[r * kStride + c];
      place = add ? from_wide<T>(to_wide(place) + to_wide(value)) : value;
    }
  }
}

}  // namespace

void transpose_samples(KernelContext& context, TensorView from, std::int64_t n, std::int64_t rows,
                       std::int64_t columns, TensorView to, Write write) {
  if (n * rows * columns == 0) return;
  with_any_storage(from.dtype, [&]<class T>(T) {
    const std::int64_t row_tiles = divide_up(rows, Tile<T>::kSide),
                       column_tiles = divide_up(columns, Tile<T>::kSide);
    const std::int64_t tiles = n * row_tiles * column_tiles;
    launch("transpose_samples", transpose<T>, {loop_blocks(tiles, 1)}, kThreads, sizeof(Tile<T>),
           context.stream, from.as<T>(), Matrices{rows, columns, row_tiles, column_tiles, tiles},
           write == Write::kAdd, to.as<T>());
  });
}

}  // namespace engine::ops::cuda
