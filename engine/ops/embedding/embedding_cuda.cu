// Forward: one warp copies a row. Backward first lists the places of each token in order (a
// counting sort in which each block reads all ids for only 32 tokens, so that blocks need not wait
// for each other). Then it sums the rows of dy at a token's places, with one warp if tokens have
// few places, or with the warps of a block, each at every eighth place, if they have many. Every
// sum has one order: no atomics. Bound by bytes; for a large vocabulary the ids are read from the
// L2 cache vocabulary / 32 times.
#include "engine/ops/embedding/embedding_cuda.h"

#include "engine/ops/device/device_code.h"
#include "engine/ops/device/float_access.h"
#include "engine/ops/device/range_check_cuda.h"
#include "engine/ops/device/storage_dispatch.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kListThreads = 1024, kListWarps = kListThreads / kWarp;
constexpr int kTile = 4 * kWarp;  // columns that a warp sums at a time, four per lane
constexpr int kManyPlaces = 16;   // per token, on average

__device__ __forceinline__ std::int32_t safe_token(std::int32_t token, std::int64_t vocabulary) {
  return token >= 0 && token < vocabulary ? token : 0;
}

template <class T, int kVector>
__global__ void __launch_bounds__(kThreads)
    copy_rows(const std::int32_t* tokens, std::int64_t places, const T* table,
              std::int64_t vocabulary, int width, T* y) {
  const std::int64_t p = std::int64_t{blockIdx.x} * kWarps + warp_index();
  if (p >= places) return;
  const T* from = table + std::int64_t{safe_token(tokens[p], vocabulary)} * width;
  for (int c = lane_index() * kVector; c < width; c += kWarp * kVector)
    *reinterpret_cast<Neighbors<T, kVector>*>(y + p * width + c) =
        *reinterpret_cast<const Neighbors<T, kVector>*>(from + c);
}

// Lane l of each warp counts token 32 * block + l in the warp's part of the places, and then writes
// these places after those of the preceding tokens and parts. starts [vocabulary + 1], listed
// [places].
__global__ void __launch_bounds__(kListThreads)
    list_places(const std::int32_t* tokens, int places, int vocabulary, std::int32_t* starts,
                std::int32_t* listed) {
  struct Shared {
    std::int32_t counts[kListWarps][kWarp], lower[kListWarps];
  };
  Shared& shared = block_shared<Shared>();
  const int lane = lane_index(), w = warp_index(),
            first_token = static_cast<int>(blockIdx.x) * kWarp, mine = first_token + lane;
  const int share = (places + kListWarps - 1) / kListWarps;
  const int first = w * share < places ? w * share : places,
            last = first + share < places ? first + share : places;
  int count = 0, lower = 0;
#pragma unroll 8
  for (int p = first; p < last; ++p) count += safe_token(tokens[p], vocabulary) == mine;
  for (int p = first + lane; p < last; p += kWarp)
    lower += safe_token(tokens[p], vocabulary) < first_token;
  shared.counts[w][lane] = count;
  lower = warp_sum(lower);
  if (lane == 0) shared.lower[w] = lower;
  __syncthreads();
  int start = 0, before = 0, own = 0;
  for (int other = 0; other < kListWarps; ++other) {
    start += shared.lower[other];
    own += shared.counts[other][lane];
    if (other < w) before += shared.counts[other][lane];
  }
  for (int l = 0; l < kWarp; ++l) {
    const int of_lane = shuffle_from(own, l);
    if (l < lane) start += of_lane;
  }
  if (mine >= vocabulary) return;
  if (w == 0) starts[mine] = start;
  if (w == 0 && mine == vocabulary - 1) starts[vocabulary] = start + own;
  std::int32_t* to = listed + start + before;
#pragma unroll 8
  for (int p = first; p < last; ++p)
    if (safe_token(tokens[p], vocabulary) == mine) *to++ = p;
}

// The column of a lane's four: adjacent, or 32 apart if rows are not aligned.
template <bool kNeighbours>
__device__ __forceinline__ int tile_column(int tile, int j) {
  return tile * kTile + (kNeighbours ? lane_index() * 4 + j : j * kWarp + lane_index());
}

template <bool kNeighbours, class T>
__device__ __forceinline__ void load_columns(const T* row, int tile, int width, Wide<T> (&to)[4]) {
  if constexpr (kNeighbours) {
    if (tile_column<true>(tile, 0) < width) load_floats<4>(row + tile_column<true>(tile, 0), to);
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (tile_column<false>(tile, j) < width) to[j] = to_wide(row[tile_column<false>(tile, j)]);
  }
}

// kSplit warps sum a tile of a token's row; warp i adds the places i, i + kSplit, and so on. The
// grid is (rows, tiles).
template <class T, int kSplit, bool kNeighbours>
__global__ void __launch_bounds__(kThreads)
    sum_places(const T* dy, const std::int32_t* starts, const std::int32_t* listed, int vocabulary,
               int width, bool add, Wide<T>* dtable) {
  struct Shared {
    Wide<T> sums[kWarps][kTile];
  };
  Shared& shared = block_shared<Shared>();
  const int w = warp_index(), tile = static_cast<int>(blockIdx.y);
  const std::int64_t row = std::int64_t{blockIdx.x} * (kWarps / kSplit) + w / kSplit;
  Wide<T> sum[4] = {};
  if (row < vocabulary) {
#pragma unroll 4
    for (int i = starts[row] + w % kSplit; i < starts[row + 1]; i += kSplit) {
      Wide<T> value[4] = {};
      load_columns<kNeighbours>(dy + std::int64_t{listed[i]} * width, tile, width, value);
#pragma unroll
      for (int j = 0; j < 4; ++j) sum[j] += value[j];
    }
  }
  if constexpr (kSplit > 1) {
#pragma unroll
    for (int j = 0; j < 4; ++j) shared.sums[w][lane_index() + j * kWarp] = sum[j];
    __syncthreads();
    if (w % kSplit != 0) return;
    for (int other = 1; other < kSplit; ++other)
#pragma unroll
      for (int j = 0; j < 4; ++j) sum[j] += shared.sums[w + other][lane_index() + j * kWarp];
  }
  if (row >= vocabulary) return;
  Wide<T> before[4] = {};
  Wide<T>* to = dtable + row * width;
  if (add) load_columns<kNeighbours>(to, tile, width, before);
#pragma unroll
  for (int j = 0; j < 4; ++j) sum[j] += before[j];
  if constexpr (kNeighbours) {
    if (tile_column<true>(tile, 0) < width) store_floats<4>(to + tile_column<true>(tile, 0), sum);
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (tile_column<false>(tile, j) < width) to[tile_column<false>(tile, j)] = sum[j];
  }
}

// Each thread adds its piece of the positions for all samples of block row y.
template <class T, int kVector>
__global__ void __launch_bounds__(kThreads)
    add_rows(const T* x, std::int64_t n, std::int64_t item, const T* positions, T* y) {
  const std::int64_t i = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVector;
  if (i >= item) return;
  Wide<T> place[kVector], value[kVector];
  load_floats<kVector>(positions + i, place);
  for (std::int64_t s = blockIdx.y; s < n; s += gridDim.y) {
    load_floats<kVector>(x + s * item + i, value);
#pragma unroll
    for (int j = 0; j < kVector; ++j) value[j] += place[j];
    store_floats<kVector>(y + s * item + i, value);
  }
}

// `all` is the number of elements of dpositions, of which the first `item` are used.
template <class T, int kVector>
__global__ void __launch_bounds__(kThreads)
    sum_samples(const T* dy, std::int64_t n, std::int64_t item, std::int64_t all, bool add,
                Wide<T>* dpositions) {
  const std::int64_t i = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVector;
  if (i >= all) return;
  Wide<T> sum[kVector] = {}, value[kVector];
  if (i < item) {
#pragma unroll 4
    for (std::int64_t s = 0; s < n; ++s) {
      load_floats<kVector>(dy + s * item + i, value);
#pragma unroll
      for (int j = 0; j < kVector; ++j) sum[j] += value[j];
    }
  }
  if (add) {
    load_floats<kVector>(dpositions + i, value);
#pragma unroll
    for (int j = 0; j < kVector; ++j) sum[j] += value[j];
  }
  store_floats<kVector>(dpositions + i, sum);
}

template <class T, class Call>
void with_vector(bool aligned, Call call) {
  if constexpr (!std::is_same_v<T, double>)
    if (aligned) return call(std::integral_constant<int, Packed<T>::kCount>{});
  call(std::integral_constant<int, 1>{});
}

unsigned blocks_of(std::int64_t count, std::int64_t each) {
  return static_cast<unsigned>(divide_up(count, each));
}

}  // namespace

std::size_t embedding_scratch_bytes(std::int64_t places, std::int64_t vocabulary) {
  return static_cast<std::size_t>(places + vocabulary + 1) * sizeof(std::int32_t);
}

void embedding_forward(KernelContext& context, const EmbeddingForward& o) {
  const EmbeddingSizes s = embedding_sizes(o.tokens, o.table);
  if (s.places == 0 || s.width == 0) return;
  check_range(context, o.tokens.as<std::int32_t>(), s.places, s.vocabulary);
  with_any_storage(o.table.dtype, [&]<class T>(T) {
    with_vector<T>(rows_are_aligned<T>(s.width, o.table.as<T>(), o.y.as<T>()),
                   [&]<int kVector>(std::integral_constant<int, kVector>) {
                     launch("embedding_forward", copy_rows<T, kVector>,
                            {blocks_of(s.places, kWarps)}, kThreads, 0, context.stream,
                            o.tokens.as<std::int32_t>(), s.places, o.table.as<T>(), s.vocabulary,
                            static_cast<int>(s.width), o.y.as<T>());
                   });
  });
}

void embedding_backward(KernelContext& context, const EmbeddingBackward& o) {
  const EmbeddingSizes s = embedding_sizes(o.tokens, o.dtable);
  if (o.dtable.count() == 0) return;
  auto* starts = reinterpret_cast<std::int32_t*>(context.scratch.data());
  std::int32_t* listed = starts + s.vocabulary + 1;
  launch("list_places", list_places, {blocks_of(s.vocabulary, kWarp)}, kListThreads,
         (kListThreads + kListWarps) * sizeof(std::int32_t), context.stream,
         o.tokens.as<std::int32_t>(), static_cast<int>(s.places), static_cast<int>(s.vocabulary),
         starts, listed);
  with_any_storage(o.dy.dtype, [&]<class T>(T) {
    const auto start = [&](auto kernel, int split) {
      launch("embedding_backward", kernel,
             {blocks_of(s.vocabulary, kWarps / split), blocks_of(s.width, kTile)}, kThreads,
             kWarps * kTile * sizeof(Wide<T>), context.stream, o.dy.as<T>(), starts, listed,
             static_cast<int>(s.vocabulary), static_cast<int>(s.width), o.write == Write::kAdd,
             o.dtable.as<Wide<T>>());
    };
    const bool aligned =
        s.width % 4 == 0 && rows_are_aligned<T>(0, o.dy.as<T>(), o.dtable.as<Wide<T>>());
    if constexpr (std::is_same_v<T, double>)
      start(sum_places<T, 1, false>, 1);
    else if (s.places >= s.vocabulary * kManyPlaces)
      aligned ? start(sum_places<T, kWarps, true>, kWarps)
              : start(sum_places<T, kWarps, false>, kWarps);
    else
      aligned ? start(sum_places<T, 1, true>, 1) : start(sum_places<T, 1, false>, 1);
  });
}

void add_positions_forward(KernelContext& context, TensorView x, TensorView positions,
                           TensorView y) {
  const std::int64_t n = x.shape[0], item = x.shape[1] * x.shape[2];
  if (n == 0 || item == 0) return;
  with_any_storage(x.dtype, [&]<class T>(T) {
    with_vector<T>(rows_are_aligned<T>(item, x.as<T>(), positions.as<T>(), y.as<T>()),
                   [&]<int kVector>(std::integral_constant<int, kVector>) {
                     const unsigned blocks = blocks_of(item, kThreads * kVector),
                                    wanted = loop_blocks(n * item, kThreads * 4);
                     const std::int64_t samples = divide_up(wanted, blocks);
                     launch("add_positions_forward", add_rows<T, kVector>,
                            {blocks, static_cast<unsigned>(samples < n ? samples : n)}, kThreads, 0,
                            context.stream, x.as<T>(), n, item, positions.as<T>(), y.as<T>());
                   });
  });
}

void add_positions_backward(KernelContext& context, TensorView dy, TensorView dpositions,
                            Write write) {
  const std::int64_t n = dy.shape[0], item = dy.shape[1] * dy.shape[2], all = dpositions.count();
  if (all == 0) return;
  with_any_storage(dy.dtype, [&]<class T>(T) {
    const bool aligned = all % Packed<T>::kCount == 0 &&
                         rows_are_aligned<T>(item, dy.as<T>(), dpositions.as<Wide<T>>());
    with_vector<T>(aligned, [&]<int kVector>(std::integral_constant<int, kVector>) {
      launch("add_positions_backward", sum_samples<T, kVector>,
             {blocks_of(all, kThreads * kVector)}, kThreads, 0, context.stream, dy.as<T>(), n, item,
             all, write == Write::kAdd, dpositions.as<Wide<T>>());
    });
  });
}

}  // namespace engine::ops::cuda
