// C [m, n] = sum over k of A(row, k) B(k, column), for operands that come from anywhere: what
// loaders bring, and what becomes of the sums, is the caller's.
//
// Scheme: a block computes a square tile of C; each of its warps a part of it in registers. Tiles
// of A and B of 64 bytes of k pass through a ring of kStages stages in shared memory, filled by
// cp.async while earlier stages are multiplied (float32 arithmetic, or mma.sync on tensor cores).
// The finished tile goes through shared memory to the epilogue, in runs of 8 columns. Where the
// tiles of C are too few for the device, k is split: parts are summed in order by a second kernel.
// Blocks are numbered in groups of 8 rows of tiles, so that those that run together share operands
// in L2. Bound: flops, for m, n, k beyond ~200. Sources: Volkov and Demmel 2008 (register tiles);
// NVIDIA, CUDA C++ Programming Guide (asynchronous copies); split k: Osama et al. 2023, "Stream-K",
// as the baseline.
//
// Why tiles: a tile of s x s reads 2 s values per step of k for s^2 multiply-adds. Each level of
// the hierarchy (L2, shared memory, registers) gets a tile large enough that its bandwidth suffices
// for the arithmetic. Why a ring of stages: a copy from global memory takes hundreds of cycles;
// with several of them under way, the tile that is needed next has already arrived.
//
// A loader is a struct that is passed to the kernel by value and has
//   using Storage             float, bf16 or f16: what it brings
//   static kByDepth           whether 16 bytes that it copies run along k (else along lines)
//   struct Line               what a thread remembers of a line between stages
//   Line line(int line)       of the first line of a 16-byte chunk; called once, also for lines
//                             outside the operand
//   void copy(Storage* to, Line&, int depth, int depth_end)
//                             puts 16 bytes to `to` (shared memory, aligned to 16): the chunk that
//                             begins at the line and at `depth`; zeros for lines outside and from
//                             depth_end on. By copy_async_16, copy_async_4 or plain stores. For
//                             each Line `depth` grows by SharedTile::kDepth from call to call.
// "Lines" are A's rows and B's columns. Without kByDepth a chunk is 16 / sizeof(Storage) lines of
// one k.
//
// An epilogue is a struct that is passed by value and has
//   void operator()(int row, int column, const float (&values)[8], int count) const
//                             C's values at columns [column, column + count) of the row; column % 8
//                             = 0; count is 8 but at the right edge; each place is given once.
#pragma once

#include "engine/ops/gemm/gemm_warp_ffma.h"
#include "engine/ops/gemm/gemm_warp_mma.h"

namespace engine::ops::cuda {

inline constexpr int kGemmStages = 4;

// Warps of a block that computes kTile x kTile: 4 x 2, 2 x 2 or 2 x 1 of them.
template <int kTile>
struct GemmWarps {
  static_assert(kTile == 128 || kTile == 64 || kTile == 32);
  static constexpr int kDown = kTile == 128 ? 4 : 2, kAcross = kTile == 32 ? 1 : 2;
  static constexpr int kThreads = kDown * kAcross * kWarp;
  static constexpr int kRows = kTile / kDown, kColumns = kTile / kAcross;  // of C, each
};

// A finished tile, row-major in shared memory, to the epilogue; a run of 8 columns a thread at a
// time.
template <int kTile, int kThreads, int kPitch, class Epilogue>
__device__ __forceinline__ void hand_over(const float* result, int m, int n, int row, int column,
                                          const Epilogue& epilogue) {
  constexpr int kRuns = kTile / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kRuns; i += kThreads) {
    const int r = i / kRuns, c = i % kRuns * 8;
    if (row + r >= m || column + c >= n) continue;
    const Packed<float> low = load_packed(result + r * kPitch + c),
                        high = load_packed(result + r * kPitch + c + 4);
    const float values[8] = {low.at[0],  low.at[1],  low.at[2],  low.at[3],
                             high.at[0], high.at[1], high.at[2], high.at[3]};
    epilogue(row + r, column + c, values, n - column - c < 8 ? n - column - c : 8);
  }
}

// A block's chunks of every stage, brought by loaders into tiles of two operands.
template <class TileA, class TileB, int kThreads, class LoaderA, class LoaderB>
class StageCopies {
 public:
  using Storage = typename LoaderA::Storage;

  __device__ __forceinline__ StageCopies(const LoaderA& a, const LoaderB& b, int row, int column)
      : loader_a_(a), loader_b_(b) {
#pragma unroll
    for (int i = 0; i < SlotsA::kCount; ++i) lines_a_[i] = loader_a_.line(row + SlotsA::line(i));
#pragma unroll
    for (int i = 0; i < SlotsB::kCount; ++i) lines_b_[i] = loader_b_.line(column + SlotsB::line(i));
  }
  __device__ __forceinline__ void start(Storage* a, Storage* b, int depth, int depth_end) {
#pragma unroll
    for (int i = 0; i < SlotsA::kCount; ++i)
      loader_a_.copy(a + TileA::at(SlotsA::line(i), SlotsA::depth(i)), lines_a_[i],
                     depth + SlotsA::depth(i), depth_end);
#pragma unroll
    for (int i = 0; i < SlotsB::kCount; ++i)
      loader_b_.copy(b + TileB::at(SlotsB::line(i), SlotsB::depth(i)), lines_b_[i],
                     depth + SlotsB::depth(i), depth_end);
  }

 private:
  using SlotsA = CopySlots<TileA, kThreads>;
  using SlotsB = CopySlots<TileB, kThreads>;
  const LoaderA& loader_a_;
  const LoaderB& loader_b_;
  typename LoaderA::Line lines_a_[SlotsA::kCount];
  typename LoaderB::Line lines_b_[SlotsB::kCount];
};

template <Products kProducts, int kTile, class LoaderA, class LoaderB>
struct GemmBlock {
  using Storage = typename LoaderA::Storage;
  static_assert(std::is_same_v<Storage, typename LoaderB::Storage>);
  using Warps = GemmWarps<kTile>;
  using TileA = SharedTile<Storage, kProducts, LoaderA::kByDepth, kTile>;
  using TileB = SharedTile<Storage, kProducts, LoaderB::kByDepth, kTile>;
  using Warp =
      std::conditional_t<kProducts == Products::kF32,
                         FfmaWarp<TileA, TileB, Warps::kRows, Warps::kColumns>,
                         MmaWarp<Storage, kProducts, TileA, TileB, Warps::kRows, Warps::kColumns>>;
  static constexpr int kThreads = Warps::kThreads;
  static constexpr int kResultPitch = kTile + 8;

  union Shared {
    struct {
      alignas(16) Storage a[TileA::kElements];
      alignas(16) Storage b[TileB::kElements];
    } stages[kGemmStages];
    float result[kTile * kResultPitch];
  };
  static_assert(sizeof(Shared) <= 99 * 1024);

  // The tile whose first row and column these are, over k in [depth, depth_end).
  template <class Epilogue>
  static __device__ __forceinline__ void run(const LoaderA& loader_a, const LoaderB& loader_b,
                                             int m, int n, int row, int column, int depth,
                                             int depth_end, const Epilogue& epilogue) {
    auto& shared = block_shared<Shared>();
    const int warp_row = warp_index() / Warps::kAcross * Warps::kRows;
    const int warp_column = warp_index() % Warps::kAcross * Warps::kColumns;
    Warp warp;
    StageCopies<TileA, TileB, kThreads, LoaderA, LoaderB> copies(loader_a, loader_b, row, column);
    const int stages =
        depth < depth_end ? (depth_end - depth + TileA::kDepth - 1) / TileA::kDepth : 0;
    for (int s = 0; s < kGemmStages - 1; ++s) {
      if (s < stages)
        copies.start(shared.stages[s].a, shared.stages[s].b, depth + s * TileA::kDepth, depth_end);
      commit_copies();
    }
    for (int s = 0; s < stages; ++s) {
      wait_copies<kGemmStages - 2>();
      __syncthreads();  // stage s is there for all, and all have left stage s - 1
      const int next = s + kGemmStages - 1;
      auto& filled = shared.stages[next % kGemmStages];
      if (next < stages) copies.start(filled.a, filled.b, depth + next * TileA::kDepth, depth_end);
      commit_copies();
      const auto& ready = shared.stages[s % kGemmStages];
      warp.multiply(ready.a, ready.b, warp_row, warp_column);
    }
    wait_copies<0>();
    __syncthreads();
    warp.put(shared.result + warp_row * kResultPitch + warp_column, kResultPitch);
    __syncthreads();
    hand_over<kTile, kThreads, kResultPitch>(shared.result, m, n, row, column, epilogue);
  }
};

}  // namespace engine::ops::cuda
