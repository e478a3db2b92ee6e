// One thread per element of y, or per pack of elements if runs of both tensors consist of whole
// packs. Tiles of transpositions pass through shared memory, so that reads and writes are whole
// sectors. Bound by bytes.
#include "engine/ops/general/strided_copy_cuda.h"

#include "engine/ops/device/packs.h"
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/general/axis_places.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;

// The factor of values, and whether they are added or plain copies.
template <class N>
struct Writing {
  N scale;
  bool add, plain;
};

template <class N>
Writing<N> writing_of(const StridedCopy& o) {
  const bool add = o.write == Write::kAdd;
  return {static_cast<N>(o.scale), add, !add && o.scale == 1};
}

template <class T>
__device__ __forceinline__ T written(T from, const Writing<Wide<T>>& w, T before) {
  if (w.plain) return from;
  const Wide<T> value = to_wide(from) * w.scale;
  return from_wide<T>(w.add ? to_wide(before) + value : value);
}

// `count` and the axes are in packs of W elements, the steps in elements.
template <class T, int W>
__global__ void __launch_bounds__(kThreads)
    copy_packs(const T* x, Axes<2> axes, std::int64_t count, Writing<Wide<T>> writing, T* y) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    const AxisPlaces<2> places = places_of(axes, i);
    Pack<T, W> pack = load_pack<W>(x + places.at[0]);
    if (!writing.plain) {
      const Pack<T, W> before = writing.add ? load_pack<W>(y + places.at[1]) : Pack<T, W>{};
      ENGINE_UNROLL
      for (int j = 0; j < W; ++j) pack.at[j] = written(pack.at[j], writing, before.at[j]);
    }
    store_pack<W>(y + places.at[1], pack);
  }
}

// Returns true if packs of W elements cover the runs of both tensors.
template <class T>
bool fits_packs(const StridedCopy& o, int width) {
  const Axis<2> inner = o.axes.inner();
  bool fits = inner.steps[0] == 1 && inner.steps[1] == 1 && inner.count % width == 0;
  for (int d = 0; d + 1 < o.axes.count; ++d)
    for (const std::int64_t step : o.axes.at[static_cast<std::size_t>(d)].steps)
      fits = fits && step % width == 0;
  return fits && aligned_to_16({o.x.as<T>() + o.x_first, o.y.as<T>() + o.y_first});
}

template <class T, int W>
void launch_packs(KernelContext& context, const StridedCopy& o) {
  Axes<2> axes = o.axes;
  if constexpr (W > 1) {
    Axis<2>& inner = axes.at[static_cast<std::size_t>(axes.count - 1)];
    inner = {inner.count / W, {W, W}};
  }
  const std::int64_t count = axes.elements();
  launch("strided_copy", copy_packs<T, W>, {loop_blocks(count, kThreads)}, kThreads, 0,
         context.stream, o.x.as<T>() + o.x_first, axes, count, writing_of<Wide<T>>(o),
         o.y.as<T>() + o.y_first);
}

// Two axes that are exchanged: `rows` is contiguous in x, `columns` in y; `axes` are the others.
struct Transposition {
  Axes<2> axes;
  Axis<2> rows, columns;
  std::int64_t row_tiles, column_tiles, tiles;  // of a matrix, of a matrix, of all
};

template <class T>
struct Tile {
  static constexpr int kSide = 128 / static_cast<int>(sizeof(T));
  static constexpr int kStride = kSide + (sizeof(T) > 4 ? 1 : 4 / static_cast<int>(sizeof(T)));
  T at[kSide * kStride];
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    transpose_tiles(const T* x, Transposition o, Writing<Wide<T>> writing, T* y) {
  constexpr int kSide = Tile<T>::kSide, kStride = Tile<T>::kStride;
  Tile<T>& tile = block_shared<Tile<T>>();
  for (std::int64_t t = blockIdx.x; t < o.tiles; t += gridDim.x) {
    const std::int64_t across = quotient(t, o.row_tiles), matrix = quotient(across, o.column_tiles);
    const std::int64_t row = (t - across * o.row_tiles) * kSide,
                       column = (across - matrix * o.column_tiles) * kSide;
    const AxisPlaces<2> places = places_of(o.axes, matrix);
    __syncthreads();  // the previous tile has been written
    for (int i = static_cast<int>(threadIdx.x); i < kSide * kSide; i += kThreads) {
      const int c = i / kSide, r = i % kSide;
      if (row + r < o.rows.count && column + c < o.columns.count)
        tile.at[c * kStride + r] = x[places.at[0] + row + r + (column + c) * o.columns.steps[0]];
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kSide * kSide; i += kThreads) {
      const int r = i / kSide, c = i % kSide;
      if (row + r >= o.rows.count || column + c >= o.columns.count) continue;
      T& to = y[places.at[1] + (row + r) * o.rows.steps[1] + column + c];
      to = written(tile.at[c * kStride + r], writing, writing.add ? to : T{});
    }
  }
}

// Returns the index of the axis that is contiguous in x, to be exchanged with the innermost one; -1
// if there is none that is worth it.
int transposed_axis(const Axes<2>& axes) {
  const Axis<2> inner = axes.inner();
  if (inner.steps[1] != 1 || inner.steps[0] <= 1 || inner.count < 8) return -1;
  for (int d = axes.count - 2; d >= 0; --d)
    if (axes.at[static_cast<std::size_t>(d)].steps[0] == 1 &&
        axes.at[static_cast<std::size_t>(d)].count >= 8)
      return d;
  return -1;
}

template <class T>
void launch_transposition(KernelContext& context, const StridedCopy& o, int row_axis) {
  Transposition t{};
  t.columns = o.axes.inner();
  t.rows = o.axes.at[static_cast<std::size_t>(row_axis)];
  for (int d = 0; d + 1 < o.axes.count; ++d)
    if (d != row_axis) t.axes.add(o.axes.at[static_cast<std::size_t>(d)]);
  t.row_tiles = divide_up(t.rows.count, Tile<T>::kSide);
  t.column_tiles = divide_up(t.columns.count, Tile<T>::kSide);
  t.tiles = t.axes.elements() * t.row_tiles * t.column_tiles;
  launch("strided_copy_tiles", transpose_tiles<T>, {loop_blocks(t.tiles, 1)}, kThreads,
         sizeof(Tile<T>), context.stream, o.x.as<T>() + o.x_first, t, writing_of<Wide<T>>(o),
         o.y.as<T>() + o.y_first);
}

}  // namespace

void strided_copy(KernelContext& context, const StridedCopy& o) {
  with_any_storage(o.x.dtype, [&]<class T>(T) {
    constexpr int kWidth = Packed<T>::kCount;
    const int row_axis = transposed_axis(o.axes);
    if (row_axis >= 0)
      launch_transposition<T>(context, o, row_axis);
    else if (fits_packs<T>(o, kWidth))
      launch_packs<T, kWidth>(context, o);
    else
      launch_packs<T, 1>(context, o);
  });
}

}  // namespace engine::ops::cuda
