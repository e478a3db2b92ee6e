// Top-k sums. The limit of the selection is the magnitude of the smallest element that is sent; it
// is found digit by digit from the highest one, each by a pass that counts the elements which agree
// with the digits so far: 8 passes for f32, 16 for f64. Another pass writes the code.
//
// Each block has a chunk of consecutive elements, so that elements are numbered in order. Counts
// are integers, exact in any order: no sort, no atomics.
#include <cstdint>
#include <limits>

#include "engine/core/cuda.h"
#include "engine/ops/codes/top_k_codes_cuda.h"
#include "engine/ops/codes/top_k_entry.h"
#include "engine/ops/device/device_code.h"
#include "engine/ops/device/flag_order.h"
#include "engine/ops/device/packs.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = kFlagThreads, kWarps = kThreads / kWarp;
constexpr int kRows = kFlagRows;  // of a thread in a tile
constexpr int kTile = kRows * kThreads;
constexpr int kDigitBits = 4;
static_assert(kTopKDigits == 1 << kDigitBits && kThreads % kTopKDigits == 0);

struct Limit {
  std::uint64_t key;   // of the elements at the limit: their digits so far
  std::uint32_t left;  // elements with these digits that are sent
};

// What the chunks before a chunk send, or what a chunk has: larger elements than the limit, and
// elements at the limit.
struct ChunkCount {
  std::uint32_t larger, equal;
};

struct Scratch {
  Limit* limit;
  ChunkCount* chunks;
  std::uint32_t* digits;  // [chunk][digit]
};

Scratch scratch_of(const KernelContext& context) {
  std::byte* const first = context.scratch.data();
  auto* const chunks = reinterpret_cast<ChunkCount*>(first + 64);
  static_assert(sizeof(Limit) <= 64 && sizeof(ChunkCount) == 2 * sizeof(std::uint32_t));
  return {reinterpret_cast<Limit*>(first), chunks,
          reinterpret_cast<std::uint32_t*>(chunks + kTopKChunks)};
}

// The chunks of `count` elements.
struct Chunks {
  std::int64_t count, each;  // elements; of a chunk, whole tiles
  unsigned chunks;

  __device__ __forceinline__ std::int64_t first() const { return blockIdx.x * each; }
  __device__ __forceinline__ std::int64_t end() const {
    const std::int64_t all = (blockIdx.x + std::int64_t{1}) * each;
    return all < count ? all : count;
  }
};

Chunks chunks_of(std::int64_t count) {
  const std::int64_t tiles = divide_up(count, kTile), each = divide_up(tiles, kTopKChunks);
  return {count, each * kTile, static_cast<unsigned>(divide_up(tiles, each))};
}

// Counts the chunk's elements by the digit at `shift`, of those that agree with the limit's higher
// digits. The highest digit: of error + values, which become the error.
template <class T, bool kHighest>
__global__ void __launch_bounds__(kThreads)
    count_digits(Chunks all, const T* values, T* error, int shift, const Limit* limit,
                 std::uint32_t* digits) {
  using Bits = typename TopKKey<T>::Bits;
  auto& warps = block_shared<std::uint32_t[kWarps][kTopKDigits]>();
  const Bits higher = kHighest ? Bits{0} : static_cast<Bits>(limit->key) >> shift >> kDigitBits;
  std::uint32_t counts[kTopKDigits] = {};
  for (std::int64_t i = all.first() + threadIdx.x; i < all.end(); i += kThreads) {
    T value = error[i];
    if (kHighest) {
      value += values[i];
      error[i] = value;
    }
    const Bits from = top_k_key(value) >> shift;
    if (!kHighest && from >> kDigitBits != higher) continue;
    const auto digit = static_cast<int>(from & (kTopKDigits - 1));
    ENGINE_UNROLL
    for (int d = 0; d < kTopKDigits; ++d) counts[d] += d == digit ? 1 : 0;
  }
  ENGINE_UNROLL
  for (int d = 0; d < kTopKDigits; ++d) {
    const std::uint32_t count = warp_sum(counts[d]);
    if (lane_index() == 0) warps[warp_index()][d] = count;
  }
  __syncthreads();
  if (threadIdx.x >= kTopKDigits) return;
  std::uint32_t count = 0;
  for (int w = 0; w < kWarps; ++w) count += warps[w][threadIdx.x];
  digits[blockIdx.x * kTopKDigits + threadIdx.x] = count;
}

struct ChooseShared {
  std::uint32_t totals[kThreads];
  int digit;
};

// Replaces the chunks' counts by what the chunks before each one send. All lanes of one warp.
__device__ __forceinline__ void number_chunks(ChunkCount* chunks, unsigned count,
                                              std::uint32_t at_limit) {
  const unsigned each = (count + kWarp - 1) / kWarp, first = each * lane_index();
  const auto for_own = [&](auto call) {
    for (unsigned c = first; c < first + each && c < count; ++c) call(chunks[c]);
  };
  ChunkCount own{0, 0};
  for_own([&](const ChunkCount& chunk) {
    own.larger += chunk.larger;
    own.equal += chunk.equal;
  });
  ChunkCount before = own;
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const int from = lane_index() < distance ? lane_index() : lane_index() - distance;
    const std::uint32_t larger = shuffle_from(before.larger, from),
                        equal = shuffle_from(before.equal, from);
    if (from == lane_index()) continue;
    before.larger += larger;
    before.equal += equal;
  }
  before.larger -= own.larger;
  before.equal -= own.equal;
  for_own([&](ChunkCount& chunk) {
    const ChunkCount has = chunk;
    chunk = {before.larger, before.equal < at_limit ? before.equal : at_limit};
    before.larger += has.larger;
    before.equal += has.equal;
  });
}

// Chooses the limit's digit at `shift`: the highest one of which, with the digits above it, at
// least `sent` elements remain. One block.
__global__ void __launch_bounds__(kThreads)
    choose_digit(Scratch scratch, unsigned chunks, int shift, bool highest, std::uint32_t sent) {
  ChooseShared& shared = block_shared<ChooseShared>();
  constexpr unsigned kAtOnce = kThreads / kTopKDigits;
  const unsigned digit_of_thread = threadIdx.x % kTopKDigits;
  std::uint32_t total = 0;
  for (unsigned c = threadIdx.x / kTopKDigits; c < chunks; c += kAtOnce)
    total += scratch.digits[c * kTopKDigits + digit_of_thread];
  shared.totals[threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.x == 0) {
    std::uint32_t left = highest ? sent : scratch.limit->left;
    int digit = kTopKDigits - 1;
    for (; digit > 0; --digit) {
      std::uint32_t found = 0;
      for (unsigned part = 0; part < kAtOnce; ++part)
        found += shared.totals[part * kTopKDigits + static_cast<unsigned>(digit)];
      if (found >= left) break;
      left -= found;
    }
    shared.digit = digit;
    const std::uint64_t above = highest ? 0 : scratch.limit->key;
    *scratch.limit = {above | static_cast<std::uint64_t>(digit) << shift, left};
  }
  __syncthreads();
  const int digit = shared.digit;
  for (unsigned c = threadIdx.x; c < chunks; c += kThreads) {
    const std::uint32_t* const counts = scratch.digits + c * kTopKDigits;
    std::uint32_t larger = highest ? 0 : scratch.chunks[c].larger;
    for (int d = digit + 1; d < kTopKDigits; ++d) larger += counts[d];
    scratch.chunks[c] = {larger, counts[digit]};
  }
  if (shift > 0) return;
  __syncthreads();
  if (warp_index() == 0) number_chunks(scratch.chunks, chunks, scratch.limit->left);
}

struct TakeShared {
  FlagStarts starts;
  std::uint32_t partial[kWarps];
};

template <class T>
struct Code {
  T* values;
  TopKIndex* indices;
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    take_largest(Chunks all, Scratch scratch, T* error, Code<T> code) {
  using Bits = typename TopKKey<T>::Bits;
  TakeShared& shared = block_shared<TakeShared>();
  const auto limit = static_cast<Bits>(scratch.limit->key);
  const std::uint32_t at_limit = scratch.limit->left;
  std::uint32_t equal_before = scratch.chunks[blockIdx.x].equal,
                sent_before = scratch.chunks[blockIdx.x].larger + equal_before;
  for (std::int64_t first = all.first(); first < all.end(); first += kTile) {
    T owed[kRows] = {};
    std::uint32_t sent = 0, equal = 0, sent_here = 0, equal_here = 0;
    ENGINE_UNROLL
    for (int row = 0; row < kRows; ++row) {
      const std::int64_t at = first + row * kThreads + threadIdx.x;
      if (at >= all.end()) continue;
      owed[row] = error[at];
      const Bits key = top_k_key(owed[row]);
      if (key > limit) {
        sent |= 1U << row;
        ++sent_here;
      } else if (key == limit) {
        equal |= 1U << row;
        ++equal_here;
      }
    }
    for_flags(equal, shared.starts, [&](int row, int number) {
      if (equal_before + static_cast<std::uint32_t>(number) >= at_limit) return;
      sent |= 1U << row;
      ++sent_here;
    });
    for_flags(sent, shared.starts, [&](int row, int number) {
      const std::int64_t at = first + row * kThreads + threadIdx.x;
      const std::uint32_t place = sent_before + static_cast<std::uint32_t>(number);
      code.values[place] = owed[row];
      code.indices[place] = static_cast<TopKIndex>(at);
      error[at] = T(0);
    });
    if (limit >= TopKKey<T>::kInfinite) {  // a later step cannot repair what is not finite
      ENGINE_UNROLL
      for (int row = 0; row < kRows; ++row)
        if (top_k_key(owed[row]) >= TopKKey<T>::kInfinite)
          error[first + row * kThreads + threadIdx.x] = T(0);
    }
    sent_before += block_sum(sent_here, shared.partial);
    equal_before += block_sum(equal_here, shared.partial);
  }
}

// Codes of f64 of other ranks are aligned to 4 bytes alone.
__device__ __forceinline__ float value_at(const std::byte* values, std::int64_t i, float) {
  return reinterpret_cast<const float*>(values)[i];
}
__device__ __forceinline__ double value_at(const std::byte* values, std::int64_t i, double) {
  const auto* const halves = reinterpret_cast<const std::uint32_t*>(values) + 2 * i;
  return __builtin_bit_cast(double, halves[0] | static_cast<std::uint64_t>(halves[1]) << 32);
}

__device__ __forceinline__ std::int64_t first_element() {
  return std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
}
__device__ __forceinline__ std::int64_t elements_at_once() {
  return std::int64_t{gridDim.x} * kThreads;
}

__device__ __forceinline__ const TopKIndex* indices_of(const std::byte* code, std::int64_t sent,
                                                       std::size_t element) {
  return reinterpret_cast<const TopKIndex*>(code + top_k_indices_at(sent, element));
}

// Adds the code of one rank, whose indices differ.
template <class T>
__global__ void add_entries(const std::byte* code, std::int64_t sent, std::int64_t count,
                            T* values) {
  const TopKIndex* const indices = indices_of(code, sent, sizeof(T));
  for (std::int64_t i = first_element(); i < sent; i += elements_at_once())
    if (indices[i] < count) values[indices[i]] += value_at(code, i, T{});
}

template <class T>
__global__ void mark_outside(RankCodes of_ranks, std::int64_t sent, std::int64_t count, T* values) {
  for (int rank = 0; rank < of_ranks.ranks; ++rank) {
    const std::byte* code = of_ranks.first + static_cast<std::size_t>(rank) * of_ranks.stride;
    const TopKIndex* const indices = indices_of(code, sent, sizeof(T));
    for (std::int64_t i = first_element(); i < sent; i += elements_at_once())
      if (indices[i] >= count) values[0] = std::numeric_limits<T>::quiet_NaN();
  }
}

// Calls call(double{}) for f64, otherwise call(float{}).
template <class Call>
void with_number(DType dtype, Call call) {
  dtype == DType::kF64 ? call(double{}) : call(float{});
}

}  // namespace

void take_top_k(KernelContext& context, const TopKOperands& operands, std::int64_t sent,
                std::byte* code) {
  if (sent == 0 && operands.values.count() == 0) return;
  const Chunks all = chunks_of(operands.values.count());
  const Scratch scratch = scratch_of(context);
  const Grid grid{all.chunks};
  with_number(operands.values.dtype, [&]<class T>(T) {
    const T* const values = operands.values.as<T>();
    T* const error = operands.error.as<T>();
    constexpr int kHighestShift = static_cast<int>(8 * sizeof(T)) - kDigitBits;
    constexpr std::size_t kCountShared = sizeof(std::uint32_t) * kWarps * kTopKDigits;
    for (int shift = kHighestShift; shift >= 0; shift -= kDigitBits) {
      const bool highest = shift == kHighestShift;
      launch("count_top_k", highest ? count_digits<T, true> : count_digits<T, false>, grid,
             kThreads, kCountShared, context.stream, all, values, error, shift, scratch.limit,
             scratch.digits);
      launch("choose_top_k", choose_digit, Grid{1}, kThreads, sizeof(ChooseShared), context.stream,
             scratch, all.chunks, shift, highest, static_cast<std::uint32_t>(sent));
    }
    const Code<T> to{reinterpret_cast<T*>(code),
                     reinterpret_cast<TopKIndex*>(code + top_k_indices_at(sent, sizeof(T)))};
    launch("take_top_k", take_largest<T>, grid, kThreads, sizeof(TakeShared), context.stream, all,
           scratch, error, to);
  });
}

void add_top_k(KernelContext& context, std::int64_t sent, const RankCodes& of_ranks,
               TensorView values) {
  if (values.count() == 0) return;
  engine::cuda::set_bytes_async(values.data, 0, values.bytes(), context.stream);
  const Grid grid{loop_blocks(sent, kThreads)};
  with_number(values.dtype, [&]<class T>(T) {
    for (int rank = 0; rank < of_ranks.ranks; ++rank)
      launch("add_top_k", add_entries<T>, grid, kThreads, 0, context.stream,
             of_ranks.first + static_cast<std::size_t>(rank) * of_ranks.stride, sent,
             values.count(), values.as<T>());
    launch("check_top_k", mark_outside<T>, grid, kThreads, 0, context.stream, of_ranks, sent,
           values.count(), values.as<T>());
  });
}

}  // namespace engine::ops::cuda
