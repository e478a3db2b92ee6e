// A thread turns a pack of pairs of a few heads, for which it computes the cosines and sines once:
// the angle without its whole turns in float64, the rest in the number type of the rows. Bound by
// bytes.
#include "engine/ops/rotary/rotary_cuda.h"

#include <numbers>
#include <numeric>

#include "engine/ops/device/row_blocks.h"
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/pool/copy_channels_cuda.h"

namespace engine::ops::cuda {
namespace {

#if !defined(__CUDACC__)  // CUDA's functions of half turns
float cospif(float x) { return static_cast<float>(std::cos(std::numbers::pi * x)); }
float sinpif(float x) { return static_cast<float>(std::sin(std::numbers::pi * x)); }
#endif

// The sine and the cosine of `angle` half turns, from -1 to 1.
__device__ __forceinline__ float sine_of(float angle) { return sinpif(angle); }
__device__ __forceinline__ float cosine_of(float angle) { return cospif(angle); }
// By Taylor series, of at most an eighth of a turn.
__device__ __forceinline__ double sine_of(double angle) {
  const double quarters = rint(2 * angle), x = (angle - quarters / 2) * std::numbers::pi;
  double cosine = 1, sine = 1;
  for (int k = 18; k >= 2; k -= 2) {
    cosine = 1 - x * x / ((k - 1) * k) * cosine;
    sine = 1 - x * x / (k * (k + 1)) * sine;
  }
  const int quarter = static_cast<int>(quarters) & 3;
  const double size = quarter % 2 == 0 ? sine * x : cosine;
  return quarter >= 2 ? -size : size;
}
__device__ __forceinline__ double cosine_of(double angle) { return sine_of(angle + 0.5); }

constexpr int kThreads = 256;
constexpr int kHeads = 4;  // per thread

template <class T>
struct RotaryOperands {
  const T* x;
  std::int64_t units, t, first_position, width;  // units: threads with work
  int heads, half, groups;                       // groups of kHeads heads
  Wide<T> direction;                             // -1: back
  bool add;
  T* y;
  RotaryTurns turns;
};

template <class T, int W>
__global__ void __launch_bounds__(kThreads) rotate(RotaryOperands<T> o) {
  const std::int64_t unit = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (unit >= o.units) return;
  const int packs = o.half / W;
  const std::int64_t group = quotient(unit, packs), row = quotient(group, o.groups),
                     position = row - quotient(row, o.t) * o.t + o.first_position;
  const int i = static_cast<int>(unit - group * packs) * W,
            first = static_cast<int>(group - row * o.groups) * kHeads;
  Wide<T> cosines[W], sines[W];
  ENGINE_UNROLL
  for (int j = 0; j < W; ++j) {
    const double turns = static_cast<double>(position) * o.turns.at[i + j];
    const auto angle = static_cast<Wide<T>>(2 * (turns - rint(turns)));
    cosines[j] = cosine_of(angle);
    sines[j] = sine_of(angle) * o.direction;
  }
  for (int head = first; head < first + kHeads && head < o.heads; ++head) {
    const std::int64_t at = row * o.width + std::int64_t{2} * head * o.half + i;
    const Pack<T, W> a = load_pack<W>(o.x + at), b = load_pack<W>(o.x + at + o.half);
    Wide<T> left[W], right[W];
    ENGINE_UNROLL
    for (int j = 0; j < W; ++j) {
      left[j] = to_wide(a.at[j]) * cosines[j] - to_wide(b.at[j]) * sines[j];
      right[j] = to_wide(b.at[j]) * cosines[j] + to_wide(a.at[j]) * sines[j];
    }
    put<T, W>(left, o.add, o.y + at);
    put<T, W>(right, o.add, o.y + at + o.half);
  }
}

}  // namespace

void rotary(KernelContext& context, const Rotary& o, const RotaryTurns& turns) {
  if (o.x.count() == 0) return;
  const std::int64_t half = o.size / 2, width = o.x.shape[2], rows = o.x.count() / width,
                     groups = divide_up(o.heads, kHeads), turned = o.heads * o.size;
  const bool add = o.write == Write::kAdd;
  with_any_storage(o.x.dtype, [&]<class T>(T) {
    with_width<T>(std::gcd(half, width), {o.x.data, o.y.data},
                  [&]<int W>(std::integral_constant<int, W>) {
                    const RotaryOperands<T> operands{o.x.as<T>(),
                                                     rows * groups * (half / W),
                                                     o.x.shape[1],
                                                     o.first_position,
                                                     width,
                                                     static_cast<int>(o.heads),
                                                     static_cast<int>(half),
                                                     static_cast<int>(groups),
                                                     o.back ? Wide<T>(-1) : Wide<T>(1),
                                                     add,
                                                     o.y.as<T>(),
                                                     turns};
                    launch("rotary", rotate<T, W>,
                           {static_cast<unsigned>(divide_up(operands.units, kThreads))}, kThreads,
                           0, context.stream, operands);
                  });
  });
  if (turned < width && (o.x.data != o.y.data || add))
    cuda::copy_channels(context, o.x, turned, turned, o.y, o.write);
}

}  // namespace engine::ops::cuda
