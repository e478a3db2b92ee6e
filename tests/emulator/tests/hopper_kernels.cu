// Kernels of the tests of the interpreter of PTX, compiled by nvcc for sm_90a: mbarriers, copies
// by tensor maps, warps with roles, clusters. `flaw` leaves something out (hopper_test.cc); 0:
// nothing. They compute nothing of use.
#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

#include "tests/emulator/tests/hopper_flaws.h"

extern __shared__ unsigned char engine_block_shared[];

namespace {

__device__ __forceinline__ uint32_t address_of(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}
__device__ __forceinline__ uint64_t address_of(const CUtensorMap& map) {
  return reinterpret_cast<uint64_t>(&map);
}

__device__ __forceinline__ void init(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ __forceinline__ void fence_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void fence_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void wait(uint32_t barrier, uint32_t parity) {
  uint32_t over = 0;
  do
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(over)
        : "r"(barrier), "r"(parity)
        : "memory");
  while (over == 0);
}
__device__ __forceinline__ bool elected() {
  uint32_t is = 0;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(is));
  return is != 0;
}
__device__ __forceinline__ void copy_in(uint32_t to, const CUtensorMap& map, int x, int y,
                                        uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(address_of(map)), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void copy_in_to(uint16_t blocks, uint32_t to, const CUtensorMap& map,
                                           int x, int y, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(address_of(map)), "r"(x), "r"(y), "r"(barrier), "h"(blocks)
      : "memory");
}
__device__ __forceinline__ void copy_out(const CUtensorMap& map, int x, int y, uint32_t from) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
          address_of(map)),
      "r"(x), "r"(y), "r"(from)
      : "memory");
}
__device__ __forceinline__ void commit_out() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ __forceinline__ void wait_out_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ __forceinline__ void sync_consumers() { asm volatile("bar.sync 1, 64;" ::: "memory"); }
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ uint32_t rank_in_cluster() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ uint32_t in_block(uint32_t address, uint32_t rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
__device__ __forceinline__ void arrive_there(uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier)
               : "memory");
}

// Shared memory from a multiple of 1024 on.
__device__ __forceinline__ unsigned char* aligned_shared() {
  return engine_block_shared + (1024 - address_of(engine_block_shared) % 1024) % 1024;
}

constexpr int kStages = 2, kColumns = 32, kRows = 8, kTile = kColumns * kRows;

}  // namespace

// out = 2 in + 1, tile by tile: warp 0 copies tiles in, two stages ahead; warps 1 and 2 compute,
// and one of their threads copies the results out.
extern "C" __global__ void __launch_bounds__(96)
    tile_pipeline(const __grid_constant__ CUtensorMap in, const __grid_constant__ CUtensorMap out,
                  int tiles, int flaw) {
  auto* stages = reinterpret_cast<float*>(aligned_shared());
  float* results = stages + kStages * kTile;
  auto* barriers = reinterpret_cast<uint64_t*>(results + kTile);
  const uint32_t full = address_of(barriers), empty = address_of(barriers + kStages);
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      init(full + 8 * s, 1);
      init(empty + 8 * s, flaw == kCountsTooMany ? 65 : 64);
    }
    if (flaw != kNoInitFence) fence_init();
  }
  if (flaw != kNoInitBarrier) __syncthreads();
  if (threadIdx.x < 32) {
    if (!elected()) return;
    for (int t = 0; t < tiles; ++t) {
      const uint32_t s = t % kStages, turn = t / kStages & 1;
      if (flaw != kNoEmptyWait) wait(empty + 8 * s, turn ^ 1);
      expect(full + 8 * s, flaw == kWrongBytes ? kTile * 4 + 16 : kTile * 4);
      copy_in(address_of(stages + s * kTile) + (flaw == kMisaligned ? 16 : 0), in, 0, t * kRows,
              full + 8 * s);
    }
    return;
  }
  const int me = static_cast<int>(threadIdx.x) - 32;
  for (int t = 0; t < tiles; ++t) {
    const uint32_t s = t % kStages, turn = t / kStages & 1;
    if (flaw != kNoFullWait) wait(full + 8 * s, turn);
    float mine[4];
    for (int i = 0; i < 4; ++i) mine[i] = 2 * stages[s * kTile + me + 64 * i] + 1;
    if (flaw != kNoRelease) arrive(empty + 8 * s);
    if (flaw == kLateRead) mine[0] = 2 * stages[s * kTile + me] + 1;
    if (me == 0 && flaw != kNoWaitForRead) wait_out_read();
    if (flaw != kNoResultBarrier) sync_consumers();
    for (int i = 0; i < 4; ++i) results[me + 64 * i] = mine[i];
    if (flaw != kNoProxyFence) fence_copies();
    sync_consumers();
    if (me == 0) {
      copy_out(out, 0, t * kRows, address_of(results));
      commit_out();
    }
  }
  if (me == 0 && flaw != kNoWaitAtEnd) wait_out_read();
}

#define SUM4(n) "+f"(sums[n]), "+f"(sums[n + 1]), "+f"(sums[n + 2]), "+f"(sums[n + 3])
#define SUM16(n) SUM4(n), SUM4(n + 4), SUM4(n + 8), SUM4(n + 12)

namespace {

__device__ __forceinline__ uint64_t descriptor(uint32_t address) {
  return static_cast<uint64_t>(address >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

__device__ __forceinline__ void multiply(float (&sums)[64], uint64_t a, uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
      "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "
      "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, p, 1, 1, 0, 0;\n}"
      : SUM16(0), SUM16(16), SUM16(32), SUM16(48)
      : "l"(a), "l"(b));
}

}  // namespace

// C [64, 128] = A [64, 64 blocks] B [128, 64 blocks]^T. Warpgroup 0 copies in, warpgroup 1
// multiplies.
extern "C" __global__ void __launch_bounds__(256, 2)
    swizzled_product(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                     float* c, int blocks, int flaw) {
  constexpr uint32_t kA = 64 * 128, kStage = kA + 128 * 128;
  const uint32_t tiles = address_of(aligned_shared());
  const uint32_t full = tiles + kStages * kStage, empty = full + 8 * kStages;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      init(full + 8 * s, 1);
      init(empty + 8 * s, 4);
    }
    fence_copies();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x != 0) return;
    for (int k = 0; k < blocks; ++k) {
      const uint32_t s = k % kStages, turn = k / kStages & 1;
      wait(empty + 8 * s, turn ^ 1);
      expect(full + 8 * s, kStage);
      copy_in(tiles + s * kStage, a, 64 * k, 0, full + 8 * s);
      copy_in(tiles + s * kStage + kA, b, 64 * k, 0, full + 8 * s);
    }
    return;
  }
  // 128 a thread at first: what the others gave back is enough for 88 more.
  if (flaw == kTooManyRegisters)
    asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
  else
    asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");
  float sums[64] = {};
  for (int k = 0; k < blocks; ++k) {
    const uint32_t s = k % kStages, turn = k / kStages & 1;
    wait(full + 8 * s, turn);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (uint32_t step = 0; step < 4; ++step)
      multiply(sums, descriptor(tiles + s * kStage + 32 * step),
               descriptor(tiles + s * kStage + kA + 32 * step));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    if (flaw == kReleasedEarly && threadIdx.x % 32 == 0) arrive(empty + 8 * s);
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    if (flaw != kReleasedEarly && threadIdx.x % 32 == 0) arrive(empty + 8 * s);
  }
  const int warp = static_cast<int>(threadIdx.x) / 32 - 4, lane = threadIdx.x % 32;
  for (int n = 0; n < 64; ++n)
    c[(16 * warp + lane / 4 + n / 2 % 2 * 8) * 128 + n / 4 * 8 + lane % 4 * 2 + n % 2] = sums[n];
}

// Each block of two copies half of every tile, to both; both write all of it, each to a half of
// out.
extern "C" __global__ void __launch_bounds__(64) __cluster_dims__(2, 1, 1)
    multicast_copy(const __grid_constant__ CUtensorMap in, float* out, int tiles, int flaw) {
  auto* stages = reinterpret_cast<float*>(aligned_shared());
  constexpr int kHalf = kTile / 2;
  auto* barriers = reinterpret_cast<uint64_t*>(stages + kStages * kTile);
  const uint32_t full = address_of(barriers), empty = address_of(barriers + kStages);
  const uint32_t rank = rank_in_cluster();
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      init(full + 8 * s, 1);
      init(empty + 8 * s, 64);  // 32 threads of each block
    }
    fence_init();
  }
  if (flaw != kNoClusterStart) {
    cluster_arrive();
    cluster_wait();
  } else {
    __syncthreads();
  }
  if (threadIdx.x < 32) {
    if (elected())
      for (int t = 0; t < tiles; ++t) {
        const uint32_t s = t % kStages, turn = t / kStages & 1;
        if (flaw != kNoEmptyWait) wait(empty + 8 * s, turn ^ 1);
        expect(full + 8 * s, kTile * 4);
        copy_in_to(3, address_of(stages + s * kTile + rank * kHalf), in, 0,
                   t * kRows + static_cast<int>(rank) * kRows / 2, full + 8 * s);
      }
    __syncwarp();
  } else {
    for (int t = 0; t < tiles; ++t) {
      const uint32_t s = t % kStages, turn = t / kStages & 1;
      wait(full + 8 * s, turn);
      for (int i = static_cast<int>(threadIdx.x) - 32; i < kTile; i += 32)
        out[(rank * tiles + t) * kTile + i] = stages[s * kTile + i];
      for (uint32_t other = 0; other < 2; ++other)
        if (flaw != kNoRemoteRelease || other == rank) arrive_there(in_block(empty + 8 * s, other));
    }
  }
  if (flaw != kNoClusterEnd) {
    cluster_arrive();
    cluster_wait();
  }
}
