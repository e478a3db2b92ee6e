// Matrix products in float64 of any matrices: C = (or +=) scale * A B for a batch of matrices.
// Included by .cu files only.
//
// A block computes a tile of 32 x 32, a thread four elements of a column of it, each as one sum in
// the order of k. There is no tuning: float64 is for comparisons. Bound by flops.
#pragma once

#include <algorithm>

#include "engine/ops/common/kernel_context.h"
#include "engine/ops/device/device_code.h"

namespace engine::ops::cuda::plain {

inline constexpr int kTile = 32, kDepth = 16, kThreads = 256, kEach = kTile * kTile / kThreads;

// A or B as a matrix in memory. A: a line is a row; B: a line is a column. kByDepth of a matrix is
// the order in which threads read it: adjacent ones along k, or along lines.
template <bool kByDepth_>
struct Strided {
  static constexpr bool kByDepth = kByDepth_;
  const double* data;
  std::int64_t line, depth, matrix;  // distances in elements
  __device__ __forceinline__ double at(std::int64_t i, std::int64_t k, std::int64_t of) const {
    return data[i * line + k * depth + of * matrix];
  }
};

struct Result {
  double* data;
  std::int64_t row, matrix;  // distances in elements
  bool add = false;
  double scale = 1;
  const double* bias = nullptr;  // of each column; `bias_matrix` is the distance between matrices
  std::int64_t bias_matrix = 0;
  bool relu = false;
};

struct Sizes {
  std::int64_t m, n, k, matrices = 1;
};

struct Tiles {
  double a[kDepth][kTile + 1], b[kDepth][kTile + 1];
};

// Writes elements [first_line, + kTile) x [first_depth, + kDepth) of a matrix; zeros outside.
template <class Matrix>
__device__ __forceinline__ void load_tile(const Matrix& from, std::int64_t first_line,
                                          std::int64_t lines, std::int64_t first_depth,
                                          std::int64_t depth, std::int64_t matrix,
                                          double (&to)[kDepth][kTile + 1]) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kDepth; i += kThreads) {
    const int l = Matrix::kByDepth ? i / kDepth : i % kTile,
              d = Matrix::kByDepth ? i % kDepth : i / kTile;
    const bool inside = first_line + l < lines && first_depth + d < depth;
    to[d][l] = inside ? from.at(first_line + l, first_depth + d, matrix) : 0;
  }
}

template <class A, class B>
__global__ void __launch_bounds__(kThreads) multiply(A a, B b, Sizes s, Result c) {
  Tiles& tiles = block_shared<Tiles>();
  const std::int64_t column_tiles = (s.n + kTile - 1) / kTile,
                     row = blockIdx.x / column_tiles * kTile,
                     column = blockIdx.x % column_tiles * kTile;
  const int x = static_cast<int>(threadIdx.x) % kTile, y = static_cast<int>(threadIdx.x) / kTile;
  for (std::int64_t matrix = blockIdx.y; matrix < s.matrices; matrix += gridDim.y) {
    double sums[kEach] = {};
    for (std::int64_t k = 0; k < s.k; k += kDepth) {
      __syncthreads();  // the previous tiles have been read
      load_tile(a, row, s.m, k, s.k, matrix, tiles.a);
      load_tile(b, column, s.n, k, s.k, matrix, tiles.b);
      __syncthreads();
      for (int d = 0; d < kDepth; ++d)
#pragma unroll
        for (int r = 0; r < kEach; ++r)
          sums[r] += tiles.a[d][y + r * (kTile / kEach)] * tiles.b[d][x];
    }
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      const std::int64_t i = row + y + r * (kTile / kEach), j = column + x;
      if (i >= s.m || j >= s.n) continue;
      double& to = c.data[i * c.row + j + matrix * c.matrix];
      double value = sums[r] * c.scale;
      if (c.bias != nullptr) value += c.bias[j + matrix * c.bias_matrix];
      if (c.relu && value < 0) value = 0;  // NaN stays
      to = c.add ? to + value : value;
    }
  }
}

template <class A, class B>
void launch_product(KernelContext& context, const char* name, const A& a, const B& b,
                    const Sizes& s, const Result& c) {
  if (s.m * s.n * s.matrices == 0) return;
  const std::int64_t tiles = divide_up(s.m, kTile) * divide_up(s.n, kTile);
  launch(name, multiply<A, B>,
         {static_cast<unsigned>(tiles),
          static_cast<unsigned>(std::min<std::int64_t>(s.matrices, 65535))},
         kThreads, sizeof(Tiles), context.stream, a, b, s, c);
}

}  // namespace engine::ops::cuda::plain
