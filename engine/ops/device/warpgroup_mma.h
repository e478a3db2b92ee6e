// Warpgroup matrix instructions of sm_90a (wgmma) on 16-bit operands in shared memory, for 64 x 128
// or 64 x 64 of C per warpgroup, and the layout of such operands. On the CPU descriptors are
// decoded as on the device, and a product is computed when it is issued and again when it is waited
// for: an operand that changes in between is an error. Source: PTX ISA, "Asynchronous Warpgroup
// Level Matrix Instructions".
//
// The layout of an operand's tile uses the 128-byte swizzle. With lines = rows of A or columns of
// B, a row has 128 bytes (64 elements), either of one line along k (by depth) or of one k along
// lines; the 16-byte chunk c of row r is at position c xor (r mod 8). 8 rows form an atom of 1024
// bytes, which is aligned to its size.
//   by depth:   rows are lines. Stride byte offset: from 8 lines to the next 8.
//               Leading byte offset: not used (1).
//   otherwise:  rows are k, in blocks of 64 lines. Stride byte offset: from 8 k to the next 8.
//               Leading byte offset: from 64 lines to the next.
// Descriptor: bits 0-13 address / 16, 16-29 leading byte offset / 16, 32-45 stride byte offset /
// 16, 62-63 swizzle (1: 128 bytes). The next k = 16 of a product starts 32 bytes later by depth,
// otherwise two atoms later.
//
// Sums of thread 32 w + 4 g + t: sums[4 j + i] is row 16 w + g + i / 2 * 8, column 8 j + 2 t + i %
// 2.
#pragma once

#include <vector>

#include "engine/ops/device/device_code.h"

namespace engine::ops::cuda {

// Bytes from the start of the block's shared memory, as used in descriptors.
__device__ __forceinline__ unsigned shared_address(const void* shared) {
#if defined(__CUDACC__)
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
#else
  return static_cast<unsigned>(static_cast<const std::byte*>(shared) -
                               static_cast<const std::byte*>(simt::shared_memory()));
#endif
}

// Makes this thread's writes to shared memory visible to wgmma of all threads after the next
// barrier.
__device__ __forceinline__ void publish_to_wgmma() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// A tile of kLines x 64 elements of k with the interface of SharedTile (gemm_shared_tile.h).
template <class S, bool kByDepth_, int kLines_>
struct SwizzledTile {
  static_assert(sizeof(S) == 2 && kLines_ % 64 == 0);
  static constexpr bool kByDepth = kByDepth_;
  static constexpr int kLines = kLines_, kDepth = 64, kChunk = 8;
  static constexpr int kElements = kLines * kDepth;
  static constexpr int kRowChunks = (kByDepth ? kDepth : kLines) / kChunk;
  static constexpr unsigned kBlockBytes = 64 * 128;  // size of 64 lines

  // The offset of the first element of a 16-byte chunk.
  static constexpr __device__ int at(int line, int depth) {
    return kByDepth ? line * 64 + ((depth / 8) ^ (line % 8)) * 8
                    : line / 64 * 64 * kDepth + depth * 64 + ((line % 64 / 8) ^ (depth % 8)) * 8;
  }
  // The descriptor of the step-th 16 of k and the lines from 64 * block on.
  static __device__ __forceinline__ std::uint64_t descriptor(unsigned tile_address, unsigned block,
                                                             unsigned step) {
    const unsigned start = tile_address + block * kBlockBytes + step * (kByDepth ? 32 : 2 * 1024);
    constexpr std::uint64_t kLeading = kByDepth ? 1 : kBlockBytes / 16, kStride = 1024 / 16,
                            kSwizzle = 1;
    return std::uint64_t{(start & 0x3ffffu) >> 4} | kLeading << 16 | kStride << 32 | kSwizzle << 62;
  }
};

#if !defined(__CUDACC__)
namespace emulated {
// Element (line, k) of the operand that a descriptor describes. kAcross: rows of 128 bytes extend
// along lines.
template <class S, bool kAcross>
float element(std::uint64_t descriptor, unsigned line, unsigned k) {
  if (descriptor >> 62 != 1)
    throw std::logic_error("a wgmma descriptor with another swizzle than 128 bytes");
  const auto start = static_cast<unsigned>(descriptor & 0x3fffu) << 4,
             leading = static_cast<unsigned>(descriptor >> 16 & 0x3fffu) << 4,
             stride = static_cast<unsigned>(descriptor >> 32 & 0x3fffu) << 4;
  const unsigned plain =
      kAcross ? start + line % 64 * 2 + line / 64 * leading + k % 8 * 128 + k / 8 * stride
              : start + line % 8 * 128 + line / 8 * stride + k * 2;
  const unsigned address = plain ^ ((plain >> 7 & 7u) << 4);
  if (address + sizeof(S) > simt::shared_bytes())
    throw std::logic_error("a wgmma operand beyond shared memory");
  S value;
  std::memcpy(&value, static_cast<const std::byte*>(simt::shared_memory()) + address, sizeof value);
  return to_float(value);
}
}  // namespace emulated
#else
// The operands are 64 or 32 sums, two descriptors, two flags for transposed operands, and whether
// to add.
#define ENGINE_PRODUCT_128(type)                                                      \
  "{\n.reg .pred add;\nsetp.ne.b32 add, %68, 0;\n"                                    \
  "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type                        \
  " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "          \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "  \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "  \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, " \
  "%64, %65, add, 1, 1, %66, %67;\n}"
#define ENGINE_PRODUCT_64(type)                                                       \
  "{\n.reg .pred add;\nsetp.ne.b32 add, %36, 0;\n"                                    \
  "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                         \
  " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "          \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, " \
  "%32, %33, add, 1, 1, %34, %35;\n}"
#define ENGINE_SUMS_4(s, i) "+f"(s[i]), "+f"(s[(i) + 1]), "+f"(s[(i) + 2]), "+f"(s[(i) + 3])
#define ENGINE_SUMS_16(s, i)                                                 \
  ENGINE_SUMS_4(s, i), ENGINE_SUMS_4(s, (i) + 4), ENGINE_SUMS_4(s, (i) + 8), \
      ENGINE_SUMS_4(s, (i) + 12)
#endif

// The 64 x kColumns sums of a warpgroup, 128 or 64 columns. kAcrossA, kAcrossB: the operand's rows
// in shared memory extend along lines, not along k.
template <class S, bool kAcrossA, bool kAcrossB, int kColumns = 128>
class WarpgroupSums {
  static_assert(kColumns == 128 || kColumns == 64);

 public:
  // Called before the first product, and after any other access to `sums`.
  __device__ __forceinline__ void begin() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
  }
  // Issues sums += A B, k = 16; it is complete after commit() and wait().
  __device__ __forceinline__ void multiply(std::uint64_t a, std::uint64_t b) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    if constexpr (kColumns == 128 && std::is_same_v<S, bf16>) {
      asm volatile(ENGINE_PRODUCT_128("bf16")
                   : ENGINE_SUMS_16(sums_, 0), ENGINE_SUMS_16(sums_, 16), ENGINE_SUMS_16(sums_, 32),
                     ENGINE_SUMS_16(sums_, 48)
                   : "l"(a), "l"(b), "n"(kAcrossA ? 1 : 0), "n"(kAcrossB ? 1 : 0), "r"(1));
    } else if constexpr (kColumns == 128) {
      asm volatile(ENGINE_PRODUCT_128("f16")
                   : ENGINE_SUMS_16(sums_, 0), ENGINE_SUMS_16(sums_, 16), ENGINE_SUMS_16(sums_, 32),
                     ENGINE_SUMS_16(sums_, 48)
                   : "l"(a), "l"(b), "n"(kAcrossA ? 1 : 0), "n"(kAcrossB ? 1 : 0), "r"(1));
    } else if constexpr (std::is_same_v<S, bf16>) {
      asm volatile(ENGINE_PRODUCT_64("bf16")
                   : ENGINE_SUMS_16(sums_, 0), ENGINE_SUMS_16(sums_, 16)
                   : "l"(a), "l"(b), "n"(kAcrossA ? 1 : 0), "n"(kAcrossB ? 1 : 0), "r"(1));
    } else {
      asm volatile(ENGINE_PRODUCT_64("f16")
                   : ENGINE_SUMS_16(sums_, 0), ENGINE_SUMS_16(sums_, 16)
                   : "l"(a), "l"(b), "n"(kAcrossA ? 1 : 0), "n"(kAcrossB ? 1 : 0), "r"(1));
    }
#elif !defined(__CUDACC__)
    open_.push_back({a, b, product(a, b)});
#endif
  }
  __device__ __forceinline__ void commit() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#elif !defined(__CUDACC__)
    groups_.push_back(std::move(open_));
    open_.clear();
#endif
  }
  // Waits until at most kPending groups are in flight.
  template <int kPending>
  __device__ __forceinline__ void wait() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#elif !defined(__CUDACC__)
    for (; groups_.size() > std::size_t{kPending}; groups_.erase(groups_.begin()))
      for (const Pending& one : groups_.front()) {
        const std::vector<float> now = product(one.a, one.b);
        if (std::memcmp(now.data(), one.result.data(), sizeof sums_) != 0)
          throw std::logic_error("an operand of wgmma changed while it was read");
        for (int i = 0; i < kSums; ++i) sums_[i] += now[static_cast<std::size_t>(i)];
      }
#endif
  }
  // Stores the sums to `to`, row-major with an even `pitch`. REQUIRES: all products are complete.
  __device__ __forceinline__ void put(float* to, int pitch) const {
    const int w = warp_index() % 4, g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        *reinterpret_cast<Pair*>(to + (16 * w + g + 8 * h) * pitch + 8 * j + 2 * t) = {
            sums_[4 * j + 2 * h], sums_[4 * j + 2 * h + 1]};
  }
  // The total of this thread's sums. REQUIRES: all products are complete.
  __device__ __forceinline__ float total() const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kSums; ++i) sum += sums_[i];
    return sum;
  }

 private:
  struct alignas(8) Pair {
    float low, high;
  };
  static constexpr int kSums = kColumns / 2;  // of a thread
  float sums_[kSums] = {};
#if !defined(__CUDACC__)
  struct Pending {
    std::uint64_t a, b;
    std::vector<float> result;
  };
  std::vector<Pending> open_;
  std::vector<std::vector<Pending>> groups_;

  static std::vector<float> product(std::uint64_t a, std::uint64_t b) {
    const auto w = static_cast<unsigned>(warp_index() % 4), g = simt::lane() / 4,
               t = simt::lane() % 4;
    std::vector<float> result(kSums);
    for (unsigned k = 0; k < 16; ++k) {
      const float rows[2] = {emulated::element<S, kAcrossA>(a, 16 * w + g, k),
                             emulated::element<S, kAcrossA>(a, 16 * w + g + 8, k)};
      for (unsigned i = 0; i < kSums / 2; ++i) {
        const float column = emulated::element<S, kAcrossB>(b, i / 2 * 8 + 2 * t + i % 2, k);
        for (unsigned h = 0; h < 2; ++h) result[i / 2 * 4 + 2 * h + i % 2] += rows[h] * column;
      }
    }
    return result;
  }
#endif
};

}  // namespace engine::ops::cuda
