// Grouped convolution of floats or bf16, with vectors along the channels of the result and threads
// over its rows. A tile of a few neighboring pixels shares each load of a weight, so that loads and
// multiply-adds take about as long; large maps are bound by bytes. Depthwise layers multiply
// vectors of x with vectors of weights, mostly by the loops of depthwise_tiles.h; in other groups,
// each channel of x is broadcast to a vector of the group's results. The gradient of x is the same
// sum, over the taps that a phase of the stride reaches. The gradient of the weights is summed in
// pieces of rows, which are then added in order.
#include "engine/ops/conv2d/grouped_conv2d_cpu.h"

#include "engine/ops/common/cpu_operands.h"
#include "engine/ops/common/depthwise_tiles.h"
#include "engine/ops/common/flat_loops.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

constexpr int kTile = 4;  // pixels of a tile

// More pieces share the sums of a gradient among more threads, and need more scratch.
constexpr std::int64_t kMaxPieces = 16, kMaxPieceFloats = 1 << 22;

bool is_depthwise(const ConvSizes& s) { return s.in == s.groups && s.out == s.groups; }

std::int64_t weight_floats(const ConvSizes& s) {
  return s.kernel_h * s.kernel_w * (s.in / s.groups) * s.out;
}

// The rows of dy are summed in this many pieces for the gradient of the weights. It depends on
// nothing but the sizes.
std::int64_t pieces_of(const ConvSizes& s) {
  const std::int64_t most =
      smaller(kMaxPieces, larger(kMaxPieceFloats / (weight_floats(s) + s.out), 1));
  return smaller(most, larger(s.n * s.out_h, 1));
}

std::int64_t forward_scratch(const ConvSizes&, int) { return 0; }
std::int64_t backward_data_scratch(const ConvSizes& s, int) {
  return is_depthwise(s) ? 0 : weight_floats(s);
}
std::int64_t weights_scratch(const ConvSizes& s, int) {
  return pieces_of(s) * (weight_floats(s) + s.out);
}

// The taps along one axis. Result j reads source j * step + offset + b * direction through tap b;
// it is pixel first + j * stride of the result's map, and the tap is tap_first + b * tap_stride of
// the kernel.
struct Axis {
  std::int64_t extent, taps, step, offset, direction;  // of the source
  std::int64_t results, first, stride, tap_first, tap_stride;
};

struct Range {
  std::int64_t first, last;
  ENGINE_INLINE std::int64_t count() const { return last - first; }
};

// The taps of result j that read pixels inside the source.
ENGINE_INLINE Range taps_of(const Axis& axis, std::int64_t j) {
  const std::int64_t start = j * axis.step + axis.offset;
  const bool up = axis.direction > 0;
  const std::int64_t first = larger(0, up ? -start : start - axis.extent + 1);
  const std::int64_t last = smaller(axis.taps, up ? axis.extent - start : start + 1);
  return {first, larger(first, last)};
}

Axis forward_axis(std::int64_t in, std::int64_t out, std::int64_t kernel, const ConvSizes& s) {
  return {in, kernel, s.stride, -s.padding, 1, out, 0, 1, 0, 1};
}

// The pixels of dx that are `first` plus a multiple of the stride: only every stride-th tap reaches
// them.
Axis backward_axis(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t first,
                   const ConvSizes& s) {
  const std::int64_t phase = (first + s.padding) % s.stride;
  const std::int64_t taps = phase < kernel ? (kernel - phase - 1) / s.stride + 1 : 0;
  return {out,   taps,
          1,     (first + s.padding) / s.stride,
          -1,    (in - first - 1) / s.stride + 1,
          first, s.stride,
          phase, s.stride};
}

// What a pass reads and writes. A group's result is the sum over its `from_group` channels; the
// weight of a tap is [from_group, to_channels].
struct Pass {
  const Stored* from;
  const float *weight, *bias;
  Stored* to;
  std::int64_t from_channels, from_group, to_channels, to_group, from_h, from_w, to_h, to_w,
      kernel_w;
};

// The window of a tile: its first pixel of the source and first weight, the number of taps, and the
// distances between taps and between pixels of the tile.
struct Window {
  const Stored* from;
  const float* weight;
  std::int64_t rows, columns, from_row, from_column, from_step, weight_row, weight_column;
};

template <int kPixels, bool kAdd>
ENGINE_INLINE void any_depthwise_tile(const Pass& pass, const Window& w, Stored* to,
                                      std::int64_t to_step) {
  for_each_vector(0, pass.to_channels, [&](auto lanes, std::int64_t c) {
    Floats sum[kPixels];
    const Floats start = pass.bias != nullptr ? lanes.load_from(pass.bias + c) : zero();
    for (int t = 0; t < kPixels; ++t) sum[t] = start;
    for (std::int64_t a = 0; a < w.rows; ++a) {
      const Stored* from = w.from + a * w.from_row + c;
      const float* weight = w.weight + a * w.weight_row + c;
      for (std::int64_t b = 0; b < w.columns; ++b) {
        const Floats tap = lanes.load_from(weight + b * w.weight_column);
        for (int t = 0; t < kPixels; ++t)
          sum[t] += lanes.load_from(from + b * w.from_column + t * w.from_step) * tap;
      }
    }
    for (int t = 0; t < kPixels; ++t) put<kAdd>(lanes, to + t * to_step + c, sum[t]);
  });
}

// The sums of one group.
template <int kPixels, bool kAdd>
ENGINE_INLINE void group_tile(const Pass& pass, const Window& w, std::int64_t group, Stored* to,
                              std::int64_t to_step) {
  const std::int64_t channel = group * pass.to_group;
  for_each_vector(channel, channel + pass.to_group, [&](auto lanes, std::int64_t c) {
    Floats sum[kPixels];
    const Floats start = pass.bias != nullptr ? lanes.load_from(pass.bias + c) : zero();
    for (int t = 0; t < kPixels; ++t) sum[t] = start;
    for (std::int64_t a = 0; a < w.rows; ++a)
      for (std::int64_t b = 0; b < w.columns; ++b) {
        const Stored* from = w.from + a * w.from_row + b * w.from_column + group * pass.from_group;
        const float* weight = w.weight + a * w.weight_row + b * w.weight_column + c;
        for (std::int64_t i = 0; i < pass.from_group; ++i) {
          const Floats tap = lanes.load_from(weight + i * pass.to_channels);
          for (int t = 0; t < kPixels; ++t)
            sum[t] += broadcast(element(from + t * w.from_step + i)) * tap;
        }
      }
    for (int t = 0; t < kPixels; ++t) put<kAdd>(lanes, to + t * to_step + c, sum[t]);
  });
}

template <int kPixels, bool kAdd>
ENGINE_INLINE void tile(const Pass& pass, const Window& w, Stored* to, std::int64_t to_step) {
  if (pass.from_group == 1 && pass.to_group == 1)
    return any_depthwise_tile<kPixels, kAdd>(pass, w, to, to_step);
  for (std::int64_t group = 0; group * pass.to_group < pass.to_channels; ++group)
    group_tile<kPixels, kAdd>(pass, w, group, to, to_step);
}

// Row i of the results of an image.
template <bool kAdd>
void results_of_row(const Pass& pass, const Axis& y, const Axis& x, std::int64_t image,
                    std::int64_t i) {
  const Range rows = taps_of(y, i);
  const std::int64_t weights = pass.from_group * pass.to_channels,
                     tap_row = y.tap_first + rows.first * y.tap_stride,
                     from_row = i * y.step + y.offset + rows.first * y.direction,
                     to_row = y.first + i * y.stride;
  const Stored* from =
      pass.from + (image * pass.from_h + from_row) * pass.from_w * pass.from_channels;
  Stored* to = pass.to + (image * pass.to_h + to_row) * pass.to_w * pass.to_channels;
  const bool reversed = x.direction < 0, depthwise = pass.from_group == 1 && pass.to_group == 1;
  const auto loop = depthwise ? depthwise_row_for<kAdd>(x.taps, x.step, reversed) : nullptr;
  if (loop != nullptr)
    return loop({.from = from,
                 .weight = pass.weight + (tap_row * pass.kernel_w + x.tap_first) * weights,
                 .bias = pass.bias,
                 .to = to + x.first * pass.to_channels,
                 .channels = pass.to_channels,
                 .rows = rows.count(),
                 .columns = x.extent,
                 .from_row = y.direction * pass.from_w * pass.from_channels,
                 .weight_row = y.tap_stride * pass.kernel_w * weights,
                 .weight_tap = x.tap_stride * weights,
                 .to_step = x.stride * pass.to_channels,
                 .results = x.results,
                 .left = x.offset - (reversed ? x.taps - 1 : 0)});
  for (std::int64_t j = 0; j < x.results;) {
    const Range columns = taps_of(x, j);
    const std::int64_t ahead = j + kTile - 1;
    const bool whole =
        ahead < x.results && columns.count() == x.taps && taps_of(x, ahead).count() == x.taps;
    const std::int64_t column = j * x.step + x.offset + columns.first * x.direction,
                       tap_column = x.tap_first + columns.first * x.tap_stride;
    const Window window{.from = from + column * pass.from_channels,
                        .weight = pass.weight + (tap_row * pass.kernel_w + tap_column) * weights,
                        .rows = rows.count(),
                        .columns = columns.count(),
                        .from_row = y.direction * pass.from_w * pass.from_channels,
                        .from_column = x.direction * pass.from_channels,
                        .from_step = x.step * pass.from_channels,
                        .weight_row = y.tap_stride * pass.kernel_w * weights,
                        .weight_column = x.tap_stride * weights};
    Stored* pixel = to + (x.first + j * x.stride) * pass.to_channels;
    if (whole) {
      tile<kTile, kAdd>(pass, window, pixel, x.stride * pass.to_channels);
    } else {
      tile<1, kAdd>(pass, window, pixel, 0);
    }
    j += whole ? kTile : 1;
  }
}

void forward(const Conv2dForward& o, const ConvSizes& s, ThreadPool& threads, float*) {
  const Pass pass{.from = stored(o.x),
                  .weight = floats(o.weight),
                  .bias = floats(o.bias),
                  .to = stored(o.y),
                  .from_channels = s.in,
                  .from_group = s.in / s.groups,
                  .to_channels = s.out,
                  .to_group = s.out / s.groups,
                  .from_h = s.in_h,
                  .from_w = s.in_w,
                  .to_h = s.out_h,
                  .to_w = s.out_w,
                  .kernel_w = s.kernel_w};
  const Axis y = forward_axis(s.in_h, s.out_h, s.kernel_h, s),
             x = forward_axis(s.in_w, s.out_w, s.kernel_w, s);
  threads.run(s.n * s.out_h, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t row = first; row < last; ++row)
      results_of_row<false>(pass, y, x, row / s.out_h, row % s.out_h);
  });
}

// Writes the weight of each tap, [in / groups, out], as [out / groups, in].
void transpose_weight(const float* weight, const ConvSizes& s, float* to) {
  const std::int64_t ins = s.in / s.groups, outs = s.out / s.groups;
  for (std::int64_t tap = 0; tap < s.kernel_h * s.kernel_w; ++tap)
    for (std::int64_t i = 0; i < ins; ++i)
      for (std::int64_t c = 0; c < s.out; ++c)
        to[(tap * outs + c % outs) * s.in + c / outs * ins + i] =
            weight[(tap * ins + i) * s.out + c];
}

void backward_data(const Conv2dBackwardData& o, const ConvSizes& s, ThreadPool& threads,
                   float* scratch) {
  const float* weight = floats(o.weight);
  const bool depthwise = is_depthwise(s);
  if (!depthwise) transpose_weight(weight, s, scratch);
  const Pass pass{.from = stored(o.dy),
                  .weight = depthwise ? weight : scratch,
                  .bias = nullptr,
                  .to = stored(o.dx),
                  .from_channels = s.out,
                  .from_group = s.out / s.groups,
                  .to_channels = s.in,
                  .to_group = s.in / s.groups,
                  .from_h = s.out_h,
                  .from_w = s.out_w,
                  .to_h = s.in_h,
                  .to_w = s.in_w,
                  .kernel_w = s.kernel_w};
  const auto run = o.write == Write::kAdd ? results_of_row<true> : results_of_row<false>;
  const std::int64_t phases = smaller(s.stride, s.in_w);
  threads.run(s.n * s.in_h, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t row = first; row < last; ++row) {
      const std::int64_t at = row % s.in_h;
      const Axis y = backward_axis(s.in_h, s.out_h, s.kernel_h, at % s.stride, s);
      for (std::int64_t phase = 0; phase < phases; ++phase)
        run(pass, y, backward_axis(s.in_w, s.out_w, s.kernel_w, phase, s), row / s.in_h,
            at / s.stride);
    }
  });
}

// A row of x and of dy whose products are summed, and the sums of the taps (ky, 0), (ky, 1), ...
struct RowSum {
  const Stored *x, *dy;  // pixel 0 of the row
  float* sums;
  std::int64_t in, out, ins, outs, stride, padding;
};

// sums[tap] += x * dy over `count` pixels of dy, for kTaps neighboring taps of a depthwise layer.
template <int kTaps, int kVectors, class Lanes>
ENGINE_INLINE void sum_vectors(const RowSum& r, Lanes lanes, const Stored* x, const Stored* dy,
                               float* sums, std::int64_t count) {
  Floats total[kTaps][kVectors];
  for (int k = 0; k < kTaps; ++k)
    for (int v = 0; v < kVectors; ++v) total[k][v] = lanes.load_from(sums + k * r.out + v * kWidth);
  for (std::int64_t j = 0; j < count; ++j, x += r.stride * r.in, dy += r.out)
    for (int v = 0; v < kVectors; ++v) {
      const Floats gradient = lanes.load_from(dy + v * kWidth);
      for (int k = 0; k < kTaps; ++k)
        total[k][v] += lanes.load_from(x + k * r.in + v * kWidth) * gradient;
    }
  for (int k = 0; k < kTaps; ++k)
    for (int v = 0; v < kVectors; ++v) lanes.store_to(sums + k * r.out + v * kWidth, total[k][v]);
}

template <int kTaps>
void sum_depthwise(const RowSum& r, std::int64_t tap, std::int64_t first, std::int64_t count) {
  constexpr int kVectors = 4, kStep = kVectors * kWidth;
  const Stored* x = r.x + (first * r.stride + tap - r.padding) * r.in;
  const Stored* dy = r.dy + first * r.out;
  float* sums = r.sums + tap * r.out;
  std::int64_t c = 0;
  for (; c + kStep <= r.out; c += kStep)
    sum_vectors<kTaps, kVectors>(r, AllLanes{}, x + c, dy + c, sums + c, count);
  for_each_vector(c, r.out, [&](auto lanes, std::int64_t at) {
    sum_vectors<kTaps, 1>(r, lanes, x + at, dy + at, sums + at, count);
  });
}

// The same of one tap for channels [i, i + kRows) of each group.
template <int kRows>
ENGINE_INLINE void sum_group(const RowSum& r, std::int64_t group, std::int64_t i, const Stored* x,
                             const Stored* dy, float* sums, std::int64_t count) {
  for_each_vector(group * r.outs, (group + 1) * r.outs, [&](auto lanes, std::int64_t c) {
    Floats total[kRows];
    for (int k = 0; k < kRows; ++k) total[k] = lanes.load_from(sums + (i + k) * r.out + c);
    for (std::int64_t j = 0; j < count; ++j) {
      const Floats gradient = lanes.load_from(dy + j * r.out + c);
      const Stored* values = x + j * r.stride * r.in + group * r.ins + i;
      for (int k = 0; k < kRows; ++k) total[k] += broadcast(element(values + k)) * gradient;
    }
    for (int k = 0; k < kRows; ++k) lanes.store_to(sums + (i + k) * r.out + c, total[k]);
  });
}

void sum_groups(const RowSum& r, std::int64_t tap, std::int64_t first, std::int64_t count) {
  constexpr int kRows = 8;
  const Stored* x = r.x + (first * r.stride + tap - r.padding) * r.in;
  const Stored* dy = r.dy + first * r.out;
  float* sums = r.sums + tap * r.ins * r.out;
  for (std::int64_t group = 0; group * r.ins < r.in; ++group) {
    std::int64_t i = 0;
    for (; i + kRows <= r.ins; i += kRows) sum_group<kRows>(r, group, i, x, dy, sums, count);
    for (; i < r.ins; ++i) sum_group<1>(r, group, i, x, dy, sums, count);
  }
}

// The pixels of a row of dy that read inside x through column `tap` of the kernel.
ENGINE_INLINE Range pixels_of(const ConvSizes& s, std::int64_t tap) {
  const std::int64_t before = s.padding - tap, after = s.in_w - 1 + s.padding - tap;
  const std::int64_t first = before > 0 ? (before + s.stride - 1) / s.stride : 0;
  const std::int64_t last = after < 0 ? 0 : smaller(s.out_w, after / s.stride + 1);
  return {first, larger(first, last)};
}

// Pixels that all taps of the row read are summed for several taps at once.
void sum_depthwise_row(const ConvSizes& s, const RowSum& r) {
  Range all{pixels_of(s, 0).first, pixels_of(s, s.kernel_w - 1).last};
  if (all.count() <= 0) all = {s.out_w, s.out_w};
  for (std::int64_t tap = 0; tap < s.kernel_w; ++tap) {
    const Range own = pixels_of(s, tap);
    const std::int64_t end = smaller(own.last, all.first);
    if (own.first < end) sum_depthwise<1>(r, tap, own.first, end - own.first);
  }
  std::int64_t tap = 0;
  for (; tap + 3 <= s.kernel_w && all.count() > 0; tap += 3)
    sum_depthwise<3>(r, tap, all.first, all.count());
  for (; tap < s.kernel_w && all.count() > 0; ++tap)
    sum_depthwise<1>(r, tap, all.first, all.count());
  for (tap = 0; tap < s.kernel_w; ++tap) {
    const Range own = pixels_of(s, tap);
    const std::int64_t begin = larger(own.first, all.last);
    if (begin < own.last) sum_depthwise<1>(r, tap, begin, own.last - begin);
  }
}

void sum_row(const ConvSizes& s, const RowSum& r) {
  if (is_depthwise(s)) return sum_depthwise_row(s, r);
  for (std::int64_t tap = 0; tap < s.kernel_w; ++tap) {
    const Range own = pixels_of(s, tap);
    if (own.count() > 0) sum_groups(r, tap, own.first, own.count());
  }
}

// The sums over `rows` of dy for row ky of the kernel.
void sum_piece(const Conv2dBackwardWeights& o, const ConvSizes& s, Range rows, std::int64_t ky,
               float* sums) {
  const std::int64_t floats_of_row = weight_floats(s) / s.kernel_h;
  __builtin_memset(sums, 0, static_cast<std::size_t>(floats_of_row) * sizeof(float));
  for (std::int64_t row = rows.first; row < rows.last; ++row) {
    const std::int64_t y = row % s.out_h * s.stride + ky - s.padding;
    if (y < 0 || y >= s.in_h) continue;
    sum_row(s, {.x = stored(o.x) + (row / s.out_h * s.in_h + y) * s.in_w * s.in,
                .dy = stored(o.dy) + row * s.out_w * s.out,
                .sums = sums,
                .in = s.in,
                .out = s.out,
                .ins = s.in / s.groups,
                .outs = s.out / s.groups,
                .stride = s.stride,
                .padding = s.padding});
  }
}

void sum_bias(const Stored* dy, const ConvSizes& s, Range rows, float* sums) {
  for_each_vector(0, s.out, [&](auto lanes, std::int64_t c) {
    Floats total = zero();
    for (std::int64_t pixel = rows.first * s.out_w; pixel < rows.last * s.out_w; ++pixel)
      total += lanes.load_from(dy + pixel * s.out + c);
    lanes.store_to(sums + c, total);
  });
}

// to = the sum of the pieces, which are `stride` floats apart, in order.
void add_pieces(const float* pieces, std::int64_t stride, const ConvSizes& s, std::int64_t count,
                float* to, bool add, ThreadPool& threads) {
  const std::int64_t all = pieces_of(s);
  run_flat(threads, count, [=](auto lanes, std::int64_t i) {
    Floats total = add ? lanes.load_from(to + i) : zero();
    for (std::int64_t piece = 0; piece < all; ++piece)
      total += lanes.load_from(pieces + piece * stride + i);
    lanes.store_to(to + i, total);
  });
}

void backward_weights(const Conv2dBackwardWeights& o, const ConvSizes& s, ThreadPool& threads,
                      float* scratch) {
  const std::int64_t weights = weight_floats(s), row = weights / s.kernel_h,
                     stride = weights + s.out, rows = s.n * s.out_h, pieces = pieces_of(s);
  const bool has_bias = o.dbias.data != nullptr, add = o.write == Write::kAdd;
  threads.run(pieces * s.kernel_h, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t unit = first; unit < last; ++unit) {
      const std::int64_t piece = unit / s.kernel_h, ky = unit % s.kernel_h;
      const Range range{rows * piece / pieces, rows * (piece + 1) / pieces};
      float* sums = scratch + piece * stride;
      sum_piece(o, s, range, ky, sums + ky * row);
      if (has_bias && ky == 0) sum_bias(stored(o.dy), s, range, sums + weights);
    }
  });
  add_pieces(scratch, stride, s, weights, floats(o.dweight), add, threads);
  if (has_bias) add_pieces(scratch + weights, stride, s, s.out, floats(o.dbias), add, threads);
}

}  // namespace

const Conv2dTable grouped_conv2d_table{forward_scratch, forward, backward_data_scratch,
                                       backward_data};
const Conv2dWeightsTable grouped_conv2d_weights_table{weights_scratch, backward_weights};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
