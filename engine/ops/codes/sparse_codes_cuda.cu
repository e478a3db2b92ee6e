// Sums of sparse codes: a block of threads for each 4096 elements, of which each thread has 16
// rows.
//
// The limit of the selection is found bit by bit, so that no sort is needed. Compiled without fused
// multiply-adds, like SparseCode on the host.
#include <cmath>
#include <cstdint>
#include <limits>

#include "engine/ops/codes/sparse_block.h"
#include "engine/ops/codes/sparse_codes_cuda.h"
#include "engine/ops/device/block_max.h"
#include "engine/ops/device/device_code.h"
#include "engine/ops/device/flag_order.h"
#include "engine/ops/device/packs.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = kSparseLanes, kWarps = kThreads / kWarp;
constexpr int kRows = kFlagRows;  // of a thread
static_assert(kRows * kThreads == kSparseBlock && kThreads == kFlagThreads);
constexpr std::size_t kScaleBytes = 2 * sizeof(base::bf16);

// A kernel's span.
struct Blocks {
  int bits;
  std::int64_t kept, count, blocks;
  std::size_t step;  // bytes of a whole block's code

  __device__ __forceinline__ int elements(std::int64_t block) const {
    const std::int64_t left = count - block * kSparseBlock;
    return static_cast<int>(left < kSparseBlock ? left : kSparseBlock);
  }
};

template <class T>
struct Given {
  const T *values, *error;
  T *rest, *velocity;
  T decay, momentum;
};

struct EncodeShared {
  double doubles[kWarps];
  int integers[kWarps];
  FlagStarts starts;
  std::uint32_t entries[kSparseBlock];  // sent elements: the index, and above it sign and level
};

// Calls call(row, place) for each of this thread's rows that has a place in the block.
template <class Call>
__device__ __forceinline__ void for_rows(int count, Call call) {
  ENGINE_UNROLL
  for (int row = 0; row < kRows; ++row) {
    const int place = row * kThreads + static_cast<int>(threadIdx.x);
    if (place < count) call(row, place);
  }
}

// Returns flags of the rows whose elements are sent: the `kept` largest of the block, the first
// ones of those that are equal. Elements beyond `count` are zero.
template <class T>
__device__ __forceinline__ std::uint32_t choose(const T (&owed)[kRows], int count, int kept,
                                                EncodeShared& shared) {
  using Bits = typename SparseKey<T>::Bits;
  Bits limit = 0;
  for (Bits bit = SparseKey<T>::kSign >> 1; bit != 0; bit >>= 1) {
    const Bits at_least = limit | bit;
    int found = 0;
    ENGINE_UNROLL
    for (int row = 0; row < kRows; ++row) found += sparse_key(owed[row]) >= at_least ? 1 : 0;
    if (block_sum(found, shared.integers) >= kept) limit = at_least;
  }
  std::uint32_t sent = 0, equal = 0;
  int larger_ones = 0;
  for_rows(count, [&](int row, int) {
    const Bits key = sparse_key(owed[row]);
    if (key > limit) {
      sent |= 1U << row;
      ++larger_ones;
    } else if (key == limit) {
      equal |= 1U << row;
    }
  });
  const int left = kept - block_sum(larger_ones, shared.integers);
  for_flags(equal, shared.starts, [&](int row, int number) {
    if (number < left) sent |= 1U << row;
  });
  return sent;
}

// Fits the scales to the sent elements. The same in all threads.
template <class T>
__device__ __forceinline__ SparseScales fit(const T (&owed)[kRows], std::uint32_t sent, int kept,
                                            int level_count, EncodeShared& shared) {
  const auto for_sent = [&](auto call) {
    ENGINE_UNROLL
    for (int row = 0; row < kRows; ++row)
      if ((sent >> row & 1) != 0) call(static_cast<double>(fabs(owed[row])));
  };
  double high = 0, low = -std::numeric_limits<double>::infinity();
  for_sent([&](double size) {
    high = larger(high, size);
    low = larger(low, -size);
  });
  high = block_max(high, shared.doubles);
  low = -block_max(low, shared.doubles);
  if (!sparse_is_finite(high)) return sparse_nan_scales();
  const SparseLevels spaced = sparse_spaced(low, high, level_count);
  SparseSums sums{.n = static_cast<double>(kept)};
  for_sent([&](double size) {
    const double level = spaced.nearest(size);
    sums.sum += size;
    sums.levels += level;
    sums.squares += level * level;
    sums.products += level * size;
  });
  sums.sum = block_sum(sums.sum, shared.doubles);
  sums.levels = block_sum(sums.levels, shared.doubles);
  sums.squares = block_sum(sums.squares, shared.doubles);
  sums.products = block_sum(sums.products, shared.doubles);
  return sparse_fitted(low, sums);
}

// Writes the bytes of `kept` entries; a byte has bits of two entries at most.
__device__ __forceinline__ void pack(const std::uint32_t* entries, int kept, int bits,
                                     std::uint8_t* to) {
  const int width = kSparseIndexBits + bits, bytes = (kept * width + 7) / 8;
  for (int i = static_cast<int>(threadIdx.x); i < bytes; i += kThreads) {
    const int entry = 8 * i / width, offset = 8 * i % width;
    std::uint32_t byte = entries[entry] >> offset;
    if (offset + 8 > width && entry + 1 < kept) byte |= entries[entry + 1] << (width - offset);
    to[i] = static_cast<std::uint8_t>(byte);
  }
}

// Byte by byte: codes have no alignment.
__device__ __forceinline__ std::uint32_t bits_at(const std::uint8_t* from, int bit, int width) {
  const std::uint8_t* first = from + bit / 8;
  const int offset = bit % 8, bytes = (offset + width + 7) / 8;
  std::uint32_t found = 0;
  for (int i = 0; i < bytes; ++i) found |= static_cast<std::uint32_t>(first[i]) << 8 * i;
  return found >> offset & ((1U << width) - 1);
}

template <class T>
__device__ __forceinline__ T value_owed(const Given<T>& given, std::int64_t at) {
  T value = given.values[at];
  if (given.velocity != nullptr) {
    value = given.momentum * given.velocity[at] + value;
    given.velocity[at] = value;
  }
  return value + given.decay * given.error[at];
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    encode_largest(Blocks all, Given<T> given, std::byte* codes) {
  EncodeShared& shared = block_shared<EncodeShared>();
  const int level_count = sparse_levels(all.bits);
  for (std::int64_t block = blockIdx.x; block < all.blocks; block += gridDim.x) {
    const std::int64_t first = block * kSparseBlock;
    const int count = all.elements(block), kept = static_cast<int>(sparse_kept(all.kept, count));
    T owed[kRows] = {};
    for_rows(count, [&](int row, int place) { owed[row] = value_owed(given, first + place); });
    const std::uint32_t sent = choose(owed, count, kept, shared);
    const SparseScales scales = fit(owed, sent, kept, level_count, shared);
    const SparseLevels levels = scales.levels(level_count);
    auto* code =
        reinterpret_cast<std::uint8_t*>(codes) + static_cast<std::size_t>(block) * all.step;
    for_flags(sent, shared.starts, [&](int row, int number) {
      const int place = row * kThreads + static_cast<int>(threadIdx.x);
      const std::uint32_t value = sparse_value_code(owed[row], levels);
      shared.entries[number] = static_cast<std::uint32_t>(place) | value << kSparseIndexBits;
      owed[row] += sparse_value(scales, level_count, value, T(-1));
      if (given.velocity != nullptr) given.velocity[first + place] = T(0);
    });
    for_rows(count, [&](int row, int place) {  // a later round cannot repair what is not finite
      given.rest[first + place] = owed[row] - owed[row] == 0 ? owed[row] : T(0);
    });
    if (threadIdx.x < kScaleBytes) {
      const std::uint32_t both = scales.base.bits | static_cast<std::uint32_t>(scales.step.bits)
                                                        << 16;
      code[threadIdx.x] = static_cast<std::uint8_t>(both >> 8 * threadIdx.x);
    }
    __syncthreads();
    pack(shared.entries, kept, all.bits, code + kScaleBytes);
  }
}

template <class T>
struct DecodeShared {
  T sums[kSparseBlock];
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    decode_largest(Blocks all, RankCodes of_ranks, T* values) {
  T* const sums = block_shared<DecodeShared<T>>().sums;
  const int level_count = sparse_levels(all.bits), width = kSparseIndexBits + all.bits;
  for (std::int64_t block = blockIdx.x; block < all.blocks; block += gridDim.x) {
    const std::int64_t first = block * kSparseBlock;
    const int count = all.elements(block), kept = static_cast<int>(sparse_kept(all.kept, count));
    bool is_outside = false;
    for_rows(count, [&](int, int place) { sums[place] = T(0); });
    for (int rank = 0; rank < of_ranks.ranks; ++rank) {
      const auto* code = reinterpret_cast<const std::uint8_t*>(
          of_ranks.first + static_cast<std::size_t>(rank) * of_ranks.stride +
          static_cast<std::size_t>(block) * all.step);
      const SparseScales scales{{static_cast<std::uint16_t>(bits_at(code, 0, 16))},
                                {static_cast<std::uint16_t>(bits_at(code, 16, 16))}};
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < kept; i += kThreads) {
        const std::uint32_t entry = bits_at(code + kScaleBytes, i * width, width);
        const int index = static_cast<int>(entry & (kSparseBlock - 1));
        if (index < count)
          sums[index] += sparse_value(scales, level_count, entry >> kSparseIndexBits, T(1));
        else
          is_outside = true;
      }
    }
    __syncthreads();
    for_rows(count, [&](int, int place) { values[first + place] = sums[place]; });
    __syncthreads();
    if (is_outside) values[first] = std::numeric_limits<T>::quiet_NaN();
  }
}

Blocks blocks_of(const SparseSpan& span, std::int64_t count) {
  return {.bits = span.bits,
          .kept = span.kept,
          .count = count,
          .blocks = divide_up(count, kSparseBlock),
          .step = sparse_bytes(span.bits, span.kept, kSparseBlock)};
}

Grid grid_for(const Blocks& all) { return {loop_blocks(all.blocks * kThreads, kThreads)}; }

// Calls call(double{}) for f64, otherwise call(float{}).
template <class Call>
void with_number(DType dtype, Call call) {
  dtype == DType::kF64 ? call(double{}) : call(float{});
}

}  // namespace

void select_largest(KernelContext& context, const SparseSpan& span, const SparseOperands& operands,
                    std::byte* codes) {
  const Blocks all = blocks_of(span, operands.values.count());
  if (all.blocks == 0) return;
  with_number(operands.values.dtype, [&]<class T>(T) {
    const Given<T> given{.values = operands.values.as<T>(),
                         .error = operands.error.as<T>(),
                         .rest = operands.rest.as<T>(),
                         .velocity = operands.velocity ? operands.velocity.as<T>() : nullptr,
                         .decay = static_cast<T>(operands.decay),
                         .momentum = static_cast<T>(operands.momentum)};
    launch("select_largest", encode_largest<T>, grid_for(all), kThreads, sizeof(EncodeShared),
           context.stream, all, given, codes);
  });
}

void add_selected(KernelContext& context, const SparseSpan& span, const RankCodes& of_ranks,
                  TensorView values) {
  const Blocks all = blocks_of(span, values.count());
  if (all.blocks == 0) return;
  with_number(values.dtype, [&]<class T>(T) {
    launch("add_selected", decode_largest<T>, grid_for(all), kThreads, sizeof(DecodeShared<T>),
           context.stream, all, of_ranks, values.as<T>());
  });
}

}  // namespace engine::ops::cuda
