// C [m, n] = sum over k of A(row, k) B(k, column), for operands from any source: the caller
// provides the loaders of the operands and the epilogue that receives the sums.
//
// Scheme: a block computes a tile of C; each of its warps keeps a part of it in registers. Tiles of
// A and B with 128 bytes of k pass through a ring of stages in shared memory, filled by cp.async
// while earlier stages are multiplied (float32 arithmetic, or mma.sync on tensor cores).
// The finished tile goes through shared memory to the epilogue, in runs of 8 columns. If C has too
// few tiles for the device, k is split: a second kernel sums the parts in order. Blocks are
// numbered in groups of 8 rows of tiles, so that concurrent blocks share operands in L2. Bound by
// flops, for m, n, k beyond ~200. Sources: Volkov and Demmel 2008 (register tiles); NVIDIA, CUDA
// C++ Programming Guide (asynchronous copies); split k: Osama et al. 2023, "Stream-K", as the
// baseline.
//
// Why tiles: a tile of s x s reads 2 s values per step of k for s^2 multiply-adds. Each level of
// the hierarchy (L2, shared memory, registers) has a tile large enough that its bandwidth suffices
// for the arithmetic. Why a ring of stages: a copy from global memory takes hundreds of cycles; the
// next tile has arrived by the time the current one is multiplied. A stage is long enough that two
// stages suffice; with stages of half the length, half of all instructions would compute addresses.
//
// A loader is a struct that is passed to the kernel by value and has
//   using Storage             float, bf16 or f16: the type of its elements
//   static kByDepth           whether the 16 bytes of a copy extend along k (otherwise along lines)
//   struct Line, struct Depth a thread's state for a chunk's first line and first depth
//   Line line(int line)       called once for each, before the loop, also for lines outside the
//                             operand
//   Depth depth(int depth)    the same for depths
//   void advance<kBy>(Depth&) kBy further along k, after each stage: computes what addresses have
//   in
//                             common, since chunks of one depth share it
//   void copy(Storage* to, const Line&, const Depth&, int depth, int depth_end)
//                             writes 16 bytes to `to` (shared memory, aligned to 16): the chunk
//                             that
//                             starts at the line and at `depth`; zeros for lines outside and from
//                             depth_end on. Uses copy_or_zero_16, copy_async_4 or plain stores.
// "Lines" are A's rows and B's columns. Without kByDepth a chunk is 16 / sizeof(Storage) lines of
// one k.
//
// An epilogue is a struct that is passed by value and has
//   void operator()(int row, int column, const float (&values)[8], int count) const
//                             receives C's values at columns [column, column + count) of the row;
//                             column % 8 = 0; count is 8 except at the right edge; each place is
//                             passed once.
#pragma once

#include "engine/ops/device/async_copy.h"
#include "engine/ops/gemm/gemm_warp_ffma.h"
#include "engine/ops/gemm/gemm_warp_mma.h"

namespace engine::ops::cuda {

inline constexpr int kGemmStages = 2;

// C [m, n] = A [m, k] B [k, n], from loaders to an epilogue. k may be 0: then C is zero.
template <class LoaderA_, class LoaderB_, class Epilogue_>
struct GemmProduct {
  using LoaderA = LoaderA_;
  using LoaderB = LoaderB_;
  using Epilogue = Epilogue_;
  const char* name;      // name of the kernel for error texts
  std::int64_t m, n, k;  // below 2^31
  LoaderA a;
  LoaderB b;
  Epilogue store;
};

// The tile of C and the part of k that a block computes.
struct BlockPlace {
  int row, column, split, depth, depth_end;
};

// Passes a finished tile, row-major in shared memory, to the epilogue, one run of 8 columns per
// thread at a time.
template <class Tile, int kPitch, class Product, class Store>
__device__ __forceinline__ void hand_over(const float* result, const Product& product,
                                          const BlockPlace& at, const Store& store) {
  constexpr int kRuns = Tile::kColumns / 8;
  const int m = static_cast<int>(product.m), n = static_cast<int>(product.n);
  for (int i = static_cast<int>(threadIdx.x); i < Tile::kRows * kRuns; i += Tile::kThreads) {
    const int r = i / kRuns, c = i % kRuns * 8;
    if (at.row + r >= m || at.column + c >= n) continue;
    const Packed<float> low = load_packed(result + r * kPitch + c),
                        high = load_packed(result + r * kPitch + c + 4);
    const float values[8] = {low.at[0],  low.at[1],  low.at[2],  low.at[3],
                             high.at[0], high.at[1], high.at[2], high.at[3]};
    const int left = n - at.column - c;
    store(at.row + r, at.column + c, values, left < 8 ? left : 8);
  }
}

// Copies a thread's chunks of one operand, one stage per call.
template <class Tile, int kThreads, class Loader>
class OperandCopies {
 public:
  using Storage = typename Loader::Storage;

  __device__ __forceinline__ OperandCopies(const Loader& loader, int line, int depth)
      : loader_(loader) {
#pragma unroll
    for (int i = 0; i < Slots::kOwnLines; ++i) lines_[i] = loader_.line(line + Slots::line(i));
#pragma unroll
    for (int i = 0; i < Slots::kOwnDepths; ++i) depths_[i] = loader_.depth(depth + Slots::depth(i));
  }
  __device__ __forceinline__ void start(Storage* tile, int depth, int depth_end) {
#pragma unroll
    for (int i = 0; i < Slots::kCount; ++i)
      loader_.copy(tile + Tile::at(Slots::line(i), Slots::depth(i)), lines_[i % Slots::kOwnLines],
                   depths_[i % Slots::kOwnDepths], depth + Slots::depth(i), depth_end);
#pragma unroll
    for (int i = 0; i < Slots::kOwnDepths; ++i) loader_.template advance<Tile::kDepth>(depths_[i]);
  }

 private:
  using Slots = CopySlots<Tile, kThreads>;
  const Loader& loader_;
  typename Loader::Line lines_[Slots::kOwnLines];
  typename Loader::Depth depths_[Slots::kOwnDepths];
};

// The same for both operands.
template <class TileA, class TileB, int kThreads, class Product>
class StageCopies {
 public:
  using Storage = typename Product::LoaderA::Storage;
  static_assert(std::is_same_v<Storage, typename Product::LoaderB::Storage>);

  __device__ __forceinline__ StageCopies(const Product& product, const BlockPlace& at)
      : a_(product.a, at.row, at.depth),
        b_(product.b, at.column, at.depth),
        depth_(at.depth),
        depth_end_(at.depth_end) {}
  __device__ __forceinline__ void start(Storage* a, Storage* b) {
    a_.start(a, depth_, depth_end_);
    b_.start(b, depth_, depth_end_);
    depth_ += TileA::kDepth;
  }

 private:
  OperandCopies<TileA, kThreads, typename Product::LoaderA> a_;
  OperandCopies<TileB, kThreads, typename Product::LoaderB> b_;
  int depth_, depth_end_;
};

template <Products kProducts, class Tile, class Product>
struct GemmBlock {
  using Storage = typename Product::LoaderA::Storage;
  using TileA = SharedTile<Storage, kProducts, Product::LoaderA::kByDepth, Tile::kRows>;
  using TileB = SharedTile<Storage, kProducts, Product::LoaderB::kByDepth, Tile::kColumns>;
  using Warp = std::conditional_t<
      kProducts == Products::kF32, FfmaWarp<TileA, TileB, Tile::kWarpRows, Tile::kWarpColumns>,
      MmaWarp<Storage, kProducts, TileA, TileB, Tile::kWarpRows, Tile::kWarpColumns>>;
  static constexpr int kResultPitch = Tile::kColumns + 8;

  union Shared {
    struct {
      alignas(16) Storage a[TileA::kElements];
      alignas(16) Storage b[TileB::kElements];
    } stages[kGemmStages];
    float result[Tile::kRows * kResultPitch];
  };
  static_assert(sizeof(Shared) <= 99 * 1024);

  // `store` is an epilogue.
  template <class Store>
  static __device__ __forceinline__ void run(const Product& product, const BlockPlace& at,
                                             const Store& store) {
    auto& shared = block_shared<Shared>();
    const int warp_row = warp_index() / Tile::kAcross * Tile::kWarpRows;
    const int warp_column = warp_index() % Tile::kAcross * Tile::kWarpColumns;
    Warp warp;
    StageCopies<TileA, TileB, Tile::kThreads, Product> copies(product, at);
    const int stages =
        at.depth < at.depth_end ? (at.depth_end - at.depth + TileA::kDepth - 1) / TileA::kDepth : 0;
    for (int s = 0; s < kGemmStages - 1; ++s) {
      if (s < stages) copies.start(shared.stages[s].a, shared.stages[s].b);
      commit_copies();
    }
    // Stage s is group s, and step s waits for it: after the last step no copy is in flight, since
    // groups of stages that do not exist are empty.
    for (int s = 0; s < stages; ++s) {
      wait_copies<kGemmStages - 2>();
      __syncthreads();  // stage s is complete for all threads, and all have finished stage s - 1
      const int next = s + kGemmStages - 1;
      auto& filled = shared.stages[next % kGemmStages];
      if (next < stages) copies.start(filled.a, filled.b);
      commit_copies();
      const auto& ready = shared.stages[s % kGemmStages];
      warp.multiply(ready.a, ready.b, warp_row, warp_column);
    }
    __syncthreads();  // all have finished the last stage
    warp.put(shared.result + warp_row * kResultPitch + warp_column, kResultPitch);
    __syncthreads();
    hand_over<Tile, kResultPitch>(shared.result, product, at, store);
  }
};

}  // namespace engine::ops::cuda
