// PowerSGD's sums. Each kernel computes tiles of all parameters in one launch, since single
// matrices are too small for a device; a block finds its part by the number of its tile.
//
// The products read each matrix once per 4 columns of a factor, so bytes bound them. A result
// element is one sum in order of the inner dimension, by one thread. Compiled without fused
// multiply-adds, like PowerSgdSum on the host.
#include <cmath>
#include <cstdint>

#include "engine/ops/codes/lane_sums.h"
#include "engine/ops/device/device_code.h"
#include "engine/ops/device/packs.h"
#include "engine/ops/device/philox_cuda.h"
#include "engine/ops/low_rank/low_rank_codes_cuda.h"
#include "engine/ops/low_rank/low_rank_rules.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = kSumLanes, kWarps = kThreads / kWarp;
constexpr int kTileRows = static_cast<int>(kLowRankRows);
constexpr int kTileColumns = static_cast<int>(kLowRankColumns);
constexpr int kInner = 32;  // elements of the inner dimension that are in shared memory at a time
static_assert(kTileRows * kTileColumns == kThreads);

template <class T>
struct Operands {
  T *gradients, *error, *packed, *factors;
};

// Returns the last of `count` parts whose first tile, at `tile_of`, is not after `tile`.
__device__ __forceinline__ const LowRankPart& find_part(const LowRankPart* parts, int count,
                                                        std::int64_t LowRankPart::*tile_of,
                                                        std::int64_t tile) {
  int first = 0, last = count - 1;
  while (first < last) {
    const int middle = (first + last + 1) / 2;
    if (parts[middle].*tile_of <= tile)
      first = middle;
    else
      last = middle - 1;
  }
  return parts[first];
}

// Calls call(part, is_matrix, i) for each element i of this block's tile of a part.
template <class Call>
__device__ __forceinline__ void for_elements(const LowRankTable& table, Call call) {
  const LowRankPart& part =
      find_part(table.parts, table.count, &LowRankPart::element_tile, blockIdx.x);
  const bool is_matrix = &part < table.parts + table.matrices;
  const std::int64_t count = part.rows * part.columns,
                     first = (blockIdx.x - part.element_tile) * kLowRankElements;
  for (std::int64_t i = first + threadIdx.x; i < first + kLowRankElements && i < count;
       i += kThreads)
    call(part, is_matrix, i);
}

template <class T>
__global__ void __launch_bounds__(kThreads) add_gradients(LowRankTable table, Operands<T> at) {
  for_elements(table, [&](const LowRankPart& part, bool is_matrix, std::int64_t i) {
    const T gradient = at.gradients[part.offset + i];
    if (is_matrix)
      at.error[part.offset + i] += gradient;
    else
      at.packed[part.packed + i] = gradient;
  });
}

// Element i of P * Q^T.
template <class T>
__device__ __forceinline__ T product_at(const LowRankTable& table, const Operands<T>& at,
                                        const LowRankPart& part, std::int64_t i) {
  const T* const p = at.packed + part.packed + i / part.columns * table.rank;
  const T* const q = at.factors + part.factor + i % part.columns * table.rank;
  T product = 0;
  for (int c = 0; c < table.rank; ++c) product += p[c] * q[c];
  return product;
}

template <class T>
__global__ void __launch_bounds__(kThreads) subtract_products(LowRankTable table, Operands<T> at) {
  for_elements(table, [&](const LowRankPart& part, bool is_matrix, std::int64_t i) {
    T& error = at.error[part.offset + i];
    if (is_matrix)
      error = low_rank_kept(error - product_at(table, at, part, i));
    else
      at.gradients[part.offset + i] = at.packed[part.packed + i];
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads) write_products(LowRankTable table, Operands<T> at) {
  for_elements(table, [&](const LowRankPart& part, bool is_matrix, std::int64_t i) {
    if (is_matrix) at.gradients[part.offset + i] = T(0) + product_at(table, at, part, i);
  });
}

template <class T>
struct ProductShared {
  T matrix[kInner][kTileRows + 1];  // a column more, so that no two lanes share a bank
  T thin[kInner][kTileColumns];
};

// A product P = M Q, or with kTransposed Q = M^T P, for M = the error: rows [first, ...) and
// columns [first_column, ...) of the result.
template <class T, bool kTransposed>
struct ThinProduct {
  static constexpr auto kTile = kTransposed ? &LowRankPart::column_tile : &LowRankPart::row_tile;

  const T *matrix, *thin;
  T* to;
  std::int64_t rows, inner, columns_of_matrix, first;
  int rank, first_column;

  __device__ __forceinline__ ThinProduct(const LowRankTable& table, const Operands<T>& at) {
    const LowRankPart& part = find_part(table.parts, table.matrices, kTile, blockIdx.x);
    const std::int64_t groups = (table.rank + kTileColumns - 1) / kTileColumns,
                       tile = blockIdx.x - part.*kTile;
    T *const p = at.packed + part.packed, *const q = at.factors + part.factor;
    matrix = at.error + part.offset;
    thin = kTransposed ? p : q;
    to = kTransposed ? q : p;
    rows = kTransposed ? part.columns : part.rows;
    inner = kTransposed ? part.rows : part.columns;
    columns_of_matrix = part.columns;
    first = tile / groups * kTileRows;
    rank = table.rank;
    first_column = static_cast<int>(tile % groups) * kTileColumns;
  }

  // Loads [done, done + kInner) of the inner dimension. Consecutive lanes read consecutive elements
  // of the matrix.
  __device__ __forceinline__ void load(std::int64_t done, ProductShared<T>& shared) const {
    for (int i = static_cast<int>(threadIdx.x); i < kInner * kTileRows; i += kThreads) {
      const int in = kTransposed ? i / kTileRows : i % kInner,
                out = kTransposed ? i % kTileRows : i / kInner;
      const std::int64_t at_inner = done + in, at_row = first + out;
      if (at_inner < inner && at_row < rows)
        shared.matrix[in][out] = kTransposed ? matrix[at_inner * columns_of_matrix + at_row]
                                             : matrix[at_row * columns_of_matrix + at_inner];
    }
    for (int i = static_cast<int>(threadIdx.x); i < kInner * kTileColumns; i += kThreads) {
      const std::int64_t at_inner = done + i / kTileColumns;
      const int at_column = first_column + i % kTileColumns;
      if (at_inner < inner && at_column < rank)
        shared.thin[i / kTileColumns][i % kTileColumns] = thin[at_inner * rank + at_column];
    }
  }
};

// A block has 64 rows of a result and 4 of its columns; each thread one element.
template <class T, bool kTransposed>
__global__ void __launch_bounds__(kThreads) multiply_thin(LowRankTable table, Operands<T> at) {
  auto& shared = block_shared<ProductShared<T>>();
  const ThinProduct<T, kTransposed> product(table, at);
  const int row = static_cast<int>(threadIdx.x) % kTileRows,
            column = static_cast<int>(threadIdx.x) / kTileRows;
  const bool has_element =
      product.first + row < product.rows && product.first_column + column < product.rank;
  T sum = 0;
  for (std::int64_t done = 0; done < product.inner; done += kInner) {
    __syncthreads();  // the last values have been read
    product.load(done, shared);
    __syncthreads();
    const std::int64_t left = has_element ? product.inner - done : 0;
    const int count = left < kInner ? static_cast<int>(left) : kInner;
    for (int in = 0; in < count; ++in) sum += shared.matrix[in][row] * shared.thin[in][column];
  }
  if (has_element)
    product.to[(product.first + row) * product.rank + product.first_column + column] = sum;
}

// Modified Gram-Schmidt, as on the host. A block for each matrix; a thread has every 256th row of
// P, which no other thread reads.
template <class T>
__global__ void __launch_bounds__(kThreads)
    orthonormalize_columns(LowRankTable table, Operands<T> at) {
  auto& partial = block_shared<double[kWarps]>();
  const LowRankPart& part = table.parts[blockIdx.x];
  T* const p = at.packed + part.packed;
  const auto for_rows = [&](auto call) {
    for (std::int64_t i = threadIdx.x; i < part.rows; i += kThreads) call(p + i * table.rank);
  };
  const auto dot = [&](int a, int b) {
    double sum = 0;
    for_rows(
        [&](const T* row) { sum += static_cast<double>(row[a]) * static_cast<double>(row[b]); });
    return block_sum(sum, partial);
  };
  for (int c = 0; c < table.rank; ++c) {
    const double before = sqrt(dot(c, c));
    for (int pass = 0; pass < 2; ++pass)
      for (int b = 0; b < c; ++b) {
        const double share = dot(b, c);
        for_rows([&](T* row) { row[c] -= static_cast<T>(share * static_cast<double>(row[b])); });
      }
    const double norm = sqrt(dot(c, c));
    const bool spanned = low_rank_spanned<T>(norm, before);
    for_rows([&](T* row) {
      row[c] = spanned ? T(0) : static_cast<T>(static_cast<double>(row[c]) / norm);
    });
  }
}

// Draws the columns of Q that are zero, from a gradient of lower rank or a zero one, or not finite:
// they would stay so forever. A block for each matrix.
template <class T>
__global__ void __launch_bounds__(kThreads) draw_lost_columns(LowRankTable table, Operands<T> at) {
  auto& partial = block_shared<int[kWarps]>();
  const LowRankPart& part = table.parts[blockIdx.x];
  T* const q = at.factors + part.factor;
  for (int c = 0; c < table.rank; ++c) {
    int useful = 0, infinite = 0;
    for (std::int64_t i = threadIdx.x; i < part.columns; i += kThreads) {
      const T value = q[i * table.rank + c];
      useful += value == T(0) ? 0 : 1;
      infinite += value - value == T(0) ? 0 : 1;
    }
    useful = block_sum(useful, partial);
    infinite = block_sum(infinite, partial);
    if (useful > 0 && infinite == 0) continue;
    for (std::int64_t i = threadIdx.x; i < part.columns; i += kThreads)
      q[i * table.rank + c] = static_cast<T>(low_rank_draw(
          philox_words(part.key, static_cast<std::uint64_t>(c), static_cast<std::uint64_t>(i)).at));
  }
}

template <class T>
Operands<T> operands_of(const LowRankOperands& operands) {
  return {operands.gradients.as<T>(), operands.error.as<T>(),
          operands.packed ? operands.packed.as<T>() : nullptr,
          operands.factors ? operands.factors.as<T>() : nullptr};
}

// Calls call(T{}, operands) with T = double for f64, else float.
template <class Call>
void with_operands(const LowRankOperands& operands, Call call) {
  if (operands.gradients.dtype == DType::kF64)
    call(double{}, operands_of<double>(operands));
  else
    call(float{}, operands_of<float>(operands));
}

template <class T>
void launch_blocks(const char* name, void (*kernel)(LowRankTable, Operands<T>), std::int64_t blocks,
                   std::size_t shared, const KernelContext& context, const LowRankTable& table,
                   const Operands<T>& operands) {
  if (blocks == 0) return;
  launch(name, kernel, {static_cast<unsigned>(blocks)}, kThreads, shared, context.stream, table,
         operands);
}

}  // namespace

void pack_low_rank(KernelContext& context, const LowRankTable& table,
                   const LowRankOperands& operands) {
  with_operands(operands, [&]<class T>(T, const Operands<T>& at) {
    launch_blocks("add_gradients", add_gradients<T>, table.element_tiles, 0, context, table, at);
    launch_blocks("multiply_thin", multiply_thin<T, false>, table.row_tiles,
                  sizeof(ProductShared<T>), context, table, at);
  });
}

void project_low_rank(KernelContext& context, const LowRankTable& table,
                      const LowRankOperands& operands) {
  with_operands(operands, [&]<class T>(T, const Operands<T>& at) {
    launch_blocks("orthonormalize_columns", orthonormalize_columns<T>, table.matrices,
                  kWarps * sizeof(double), context, table, at);
    launch_blocks("multiply_thin", multiply_thin<T, true>, table.column_tiles,
                  sizeof(ProductShared<T>), context, table, at);
    launch_blocks("subtract_products", subtract_products<T>, table.element_tiles, 0, context, table,
                  at);
  });
}

void expand_low_rank(KernelContext& context, const LowRankTable& table,
                     const LowRankOperands& operands) {
  with_operands(operands, [&]<class T>(T, const Operands<T>& at) {
    launch_blocks("write_products", write_products<T>, table.element_tiles, 0, context, table, at);
    launch_blocks("draw_lost_columns", draw_lost_columns<T>, table.matrices, kWarps * sizeof(int),
                  context, table, at);
  });
}

}  // namespace engine::ops::cuda
