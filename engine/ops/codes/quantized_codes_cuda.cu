// Sums of quantized codes: a warp for each block of 256 elements, of which each lane has 4 pairs.
//
// Bound by bytes: quantize() reads 8 and writes 4 per element of f32 besides the code. Compiled
// without fused multiply-adds, like QuantizedCode on the host.
#include <cmath>
#include <cstdint>

#include "engine/ops/codes/quantized_codes_cuda.h"
#include "engine/ops/device/block_max.h"
#include "engine/ops/device/device_code.h"
#include "engine/ops/device/packs.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPairs = static_cast<int>(kQuantizedBlock) / (2 * kWarp);  // of a lane
constexpr int kElements = 2 * kPairs;

// A kernel's span.
struct Blocks {
  int bits;
  std::int64_t position, count, blocks;
  std::size_t step;  // bytes of a whole block's code

  // The number of elements of a block.
  __device__ __forceinline__ int elements(std::int64_t block) const {
    const std::int64_t left = count - block * kQuantizedBlock;
    return static_cast<int>(left < kQuantizedBlock ? left : kQuantizedBlock);
  }
};

__device__ __forceinline__ std::int64_t first_block() {
  return (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarp;
}
__device__ __forceinline__ std::int64_t blocks_at_once() {
  return std::int64_t{gridDim.x} * (kThreads / kWarp);
}

// The place of this lane's pair in a block.
__device__ __forceinline__ int place_of(int pair) { return 2 * (pair * kWarp + lane_index()); }

__device__ __forceinline__ RoundingNoise noise_of(const NoiseSource& source) {
  return {source.stream, source.rank, source.round_at != nullptr ? *source.round_at : source.round};
}

// Byte by byte: codes of an odd number of elements have no alignment.
__device__ __forceinline__ float scale_at(const std::uint8_t* code) {
  return base::to_float(base::bf16{static_cast<std::uint16_t>(code[0] | code[1] << 8)});
}

// Calls call(i, place) for each of this lane's `kElements` numbers i that has a place in the block.
template <class Call>
__device__ __forceinline__ void for_elements(int count, Call call) {
  ENGINE_UNROLL
  for (int i = 0; i < kElements; ++i) {
    const int place = place_of(i / 2) + i % 2;
    if (place < count) call(i, place);
  }
}

template <class T>
__device__ __forceinline__ void add_code(const std::byte* code, int bits, int count,
                                         T (&values)[kElements]) {
  const T unit = static_cast<T>(scale_at(reinterpret_cast<const std::uint8_t*>(code)));
  const auto* levels = reinterpret_cast<const std::int8_t*>(code + sizeof(base::bf16));
  for_elements(count, [&](int i, int place) {
    const int level = bits == 8 ? levels[place] : signed_half(levels[place / 2] >> 4 * (i % 2));
    values[i] += unit * static_cast<T>(level);
  });
}

template <class T>
__device__ __forceinline__ void add_codes(const RankCodes& of_ranks, std::size_t at, int bits,
                                          int count, T (&values)[kElements]) {
  for (int rank = 0; rank < of_ranks.ranks; ++rank)
    add_code(of_ranks.first + static_cast<std::size_t>(rank) * of_ranks.stride + at, bits, count,
             values);
}

// Encodes a block, whose values beyond `count` are zero. They become what the code drops.
template <class T>
__device__ __forceinline__ void write_code(T (&values)[kElements], int bits, int count,
                                           const RoundingNoise& noise, std::int64_t position,
                                           std::byte* code) {
  T largest = 0;
  ENGINE_UNROLL
  for (int i = 0; i < kElements; ++i) largest = larger(largest, static_cast<T>(fabs(values[i])));
  largest = warp_max_or_nan(largest);
  const int levels = quantized_levels(bits);
  const base::bf16 scale = quantized_scale(static_cast<double>(largest), levels);
  auto* coded = reinterpret_cast<std::uint8_t*>(code);
  if (lane_index() < 2)
    coded[lane_index()] = static_cast<std::uint8_t>(scale.bits >> 8 * lane_index());
  coded += sizeof scale;
  const T unit = static_cast<T>(base::to_float(scale));
  const bool empty = !(unit > 0);  // zeros, or NaN: the integers are zero
  const T inverse = empty ? T(0) : T(1) / unit, less = T(-1) * unit;
  int at[kElements] = {};
  for_elements(count, [&](int i, int place) {
    if (!empty) at[i] = quantized_level(values[i], inverse, levels, noise.at(position + place));
    const T dropped = values[i] + less * static_cast<T>(at[i]);
    values[i] = dropped - dropped == 0 ? dropped : T(0);  // a later round cannot repair it
  });
  for_elements(count, [&](int i, int place) {
    if (bits == 8)
      coded[place] = static_cast<std::uint8_t>(at[i]);
    else if (i % 2 == 0)
      coded[place / 2] = static_cast<std::uint8_t>((at[i] & 15) | (at[i + 1] & 15) << 4);
  });
}

template <class T>
__global__ void encode(Blocks all, NoiseSource source, T decay, const T* values, const T* error,
                       T* rest, std::byte* codes) {
  const RoundingNoise noise = noise_of(source);
  for (std::int64_t block = first_block(); block < all.blocks; block += blocks_at_once()) {
    const std::int64_t first = block * kQuantizedBlock;
    const int count = all.elements(block);
    T owed[kElements] = {};
    for_elements(count, [&](int i, int place) {
      owed[i] = values[first + place] + decay * error[first + place];
    });
    write_code(owed, all.bits, count, noise, all.position + first,
               codes + static_cast<std::size_t>(block) * all.step);
    for_elements(count, [&](int i, int place) { rest[first + place] = owed[i]; });
  }
}

template <class T>
__global__ void encode_sum(Blocks all, NoiseSource source, RankCodes of_ranks, T* rest,
                           std::byte* codes) {
  const RoundingNoise noise = noise_of(source);
  for (std::int64_t block = first_block(); block < all.blocks; block += blocks_at_once()) {
    const std::int64_t first = block * kQuantizedBlock;
    const int count = all.elements(block);
    const std::size_t at = static_cast<std::size_t>(block) * all.step;
    T sum[kElements] = {};
    add_codes(of_ranks, at, all.bits, count, sum);
    write_code(sum, all.bits, count, noise, all.position + first, codes + at);
    for_elements(count, [&](int i, int place) { rest[first + place] += sum[i]; });
  }
}

template <class T>
__global__ void decode(Blocks all, RankCodes of_ranks, T* values) {
  for (std::int64_t block = first_block(); block < all.blocks; block += blocks_at_once()) {
    const std::int64_t first = block * kQuantizedBlock;
    const int count = all.elements(block);
    T sum[kElements] = {};
    add_codes(of_ranks, static_cast<std::size_t>(block) * all.step, all.bits, count, sum);
    for_elements(count, [&](int i, int place) { values[first + place] = sum[i]; });
  }
}

Blocks blocks_of(const QuantizedSpan& span, std::int64_t count) {
  return {.bits = span.bits,
          .position = span.position,
          .count = count,
          .blocks = divide_up(count, kQuantizedBlock),
          .step = quantized_bytes(span.bits, kQuantizedBlock)};
}

Grid grid_for(const Blocks& all) { return {loop_blocks(all.blocks * kWarp, kThreads)}; }

// Calls call(double{}) for f64, otherwise call(float{}).
template <class Call>
void with_number(DType dtype, Call call) {
  dtype == DType::kF64 ? call(double{}) : call(float{});
}

}  // namespace

void quantize(KernelContext& context, const QuantizedSpan& span, double decay, TensorView values,
              TensorView error, TensorView rest, std::byte* codes) {
  const Blocks all = blocks_of(span, values.count());
  if (all.blocks == 0) return;
  with_number(values.dtype, [&]<class T>(T) {
    launch("quantize", encode<T>, grid_for(all), kThreads, 0, context.stream, all, span.noise,
           static_cast<T>(decay), values.as<T>(), error.as<T>(), rest.as<T>(), codes);
  });
}

void quantize_sum(KernelContext& context, const QuantizedSpan& span, const RankCodes& of_ranks,
                  TensorView rest, std::byte* codes) {
  const Blocks all = blocks_of(span, rest.count());
  if (all.blocks == 0) return;
  with_number(rest.dtype, [&]<class T>(T) {
    launch("quantize_sum", encode_sum<T>, grid_for(all), kThreads, 0, context.stream, all,
           span.noise, of_ranks, rest.as<T>(), codes);
  });
}

void add_quantized(KernelContext& context, const QuantizedSpan& span, const RankCodes& of_ranks,
                   TensorView values) {
  const Blocks all = blocks_of(span, values.count());
  if (all.blocks == 0) return;
  with_number(values.dtype, [&]<class T>(T) {
    launch("add_quantized", decode<T>, grid_for(all), kThreads, 0, context.stream, all, of_ranks,
           values.as<T>());
  });
}

}  // namespace engine::ops::cuda
