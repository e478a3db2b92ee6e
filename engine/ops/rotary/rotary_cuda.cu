// A thread turns a pack of pairs of a few heads, for which it computes the cosines and sines once:
// the angle without its whole turns in float64, the rest in the number type of the rows. Bound by
// bytes.
#include "engine/ops/rotary/rotary_cuda.h"

#include <algorithm>
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
// Samples per launch, if they have first positions: these are parameters.
constexpr std::int64_t kMaxStarts = 64;

template <class T>
struct RotaryOperands {
  const T* x;
  std::int64_t units, t, width;  // units: threads with work
  int heads, half, groups;       // groups of kHeads heads
  Wide<T> direction;             // -1: back
  bool add;
  T* y;
  RotaryTurns turns;
  bool has_starts;                  // else the samples begin at position 0
  std::int64_t starts[kMaxStarts];  // of the launch's samples
};

template <class T, int W>
__global__ void __launch_bounds__(kThreads) rotate(RotaryOperands<T> o) {
  const std::int64_t unit = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (unit >= o.units) return;
  const int packs = o.half / W;
  const std::int64_t group = quotient(unit, packs), row = quotient(group, o.groups),
                     sample = quotient(row, o.t),
                     position = row - sample * o.t + (o.has_starts ? o.starts[sample] : 0);
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

// Starts the kernel for all samples at once, or for some at a time if they have first positions.
template <class T, int W>
void start_rotations(KernelContext& context, const Rotary& from, RotaryOperands<T> o) {
  const std::int64_t n = from.x.shape[0], most = o.has_starts ? kMaxStarts : n,
                     units_per_sample = o.t * o.groups * (o.half / W);
  for (std::int64_t first = 0; first < n; first += most) {
    const std::int64_t samples = std::min(most, n - first);
    if (o.has_starts) std::copy_n(from.first_positions.begin() + first, samples, o.starts);
    o.units = samples * units_per_sample;
    launch("rotary", rotate<T, W>, {static_cast<unsigned>(divide_up(o.units, kThreads))}, kThreads,
           0, context.stream, o);
    o.x += samples * o.t * o.width;
    o.y += samples * o.t * o.width;
  }
}

}  // namespace

void rotary(KernelContext& context, const Rotary& o, const RotaryTurns& turns) {
  if (o.x.count() == 0) return;
  const std::int64_t half = o.size / 2, width = o.x.shape[2], groups = divide_up(o.heads, kHeads),
                     turned = o.heads * o.size;
  const bool add = o.write == Write::kAdd;
  with_any_storage(o.x.dtype, [&]<class T>(T) {
    const RotaryOperands<T> operands{.x = o.x.as<T>(),
                                     .units = 0,
                                     .t = o.x.shape[1],
                                     .width = width,
                                     .heads = static_cast<int>(o.heads),
                                     .half = static_cast<int>(half),
                                     .groups = static_cast<int>(groups),
                                     .direction = o.back ? Wide<T>(-1) : Wide<T>(1),
                                     .add = add,
                                     .y = o.y.as<T>(),
                                     .turns = turns,
                                     .has_starts = !o.first_positions.empty(),
                                     .starts = {}};
    with_width<T>(std::gcd(half, width), {o.x.data, o.y.data},
                  [&]<int W>(std::integral_constant<int, W>) {
                    start_rotations<T, W>(context, o, operands);
                  });
  });
  if (turned < width && (o.x.data != o.y.data || add))
    cuda::copy_channels(context, o.x, turned, turned, o.y, o.write);
}

}  // namespace engine::ops::cuda
