// Grouped convolution of floats or bf16. Groups of several channels are those of channel_groups. In
// depthwise layers, vectors lie along the channels and threads share the rows of the result. A tile
// of a few neighboring pixels shares each load of a weight, so that loads and multiply-adds take
// about as long; large maps are bound by bytes. Most layers use the loops of depthwise_tiles.h. The
// gradient of x is the same sum, over the taps that a phase of the stride reaches. The gradient of
// the weights is summed in pieces of rows, which are then added in order.
#include "engine/ops/conv2d/grouped_conv2d_cpu.h"

#include "engine/ops/channel_groups/group_sums.h"
#include "engine/ops/channel_groups/group_weights.h"
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

ConvAxisSizes rows_axis(const ConvSizes& s) {
  return {s.in_h, s.out_h, s.kernel_h, s.stride, s.padding};
}
ConvAxisSizes columns_axis(const ConvSizes& s) {
  return {s.in_w, s.out_w, s.kernel_w, s.stride, s.padding};
}

// The passes without their operands.
GroupPass group_pass(const ConvSizes& s, bool backward) {
  return {.from = nullptr,
          .weight = nullptr,
          .bias = nullptr,
          .to = nullptr,
          .images = s.n,
          .groups = s.groups,
          .from_channels = backward ? s.out : s.in,
          .to_channels = backward ? s.in : s.out,
          .y = rows_axis(s),
          .x = columns_axis(s),
          .backward = backward,
          .add = false};
}
GroupWeights group_weights_of(const ConvSizes& s) {
  return {.x = nullptr,
          .dy = nullptr,
          .dweight = nullptr,
          .images = s.n,
          .groups = s.groups,
          .in = s.in,
          .out = s.out,
          .rows = rows_axis(s),
          .columns = columns_axis(s),
          .add = false};
}

std::int64_t forward_scratch(const ConvSizes& s, int threads) {
  return is_depthwise(s) ? 0 : group_sums_scratch(group_pass(s, false), threads);
}
std::int64_t backward_data_scratch(const ConvSizes& s, int threads) {
  return is_depthwise(s) ? 0 : group_sums_scratch(group_pass(s, true), threads);
}
std::int64_t weights_scratch(const ConvSizes& s, int threads) {
  if (is_depthwise(s)) return pieces_of(s) * (weight_floats(s) + s.out);
  return larger(group_weights_scratch(group_weights_of(s), threads), pieces_of(s) * s.out);
}

// The operands of a pass of a depthwise layer.
struct Pass {
  const Stored* from;
  const float *weight, *bias;
  Stored* to;
  std::int64_t channels, from_h, from_w, to_h, to_w, kernel_w;
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
  for_each_vector(0, pass.channels, [&](auto lanes, std::int64_t c) {
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

// Row i of the results of an image.
template <bool kAdd>
void results_of_row(const Pass& pass, const ConvAxis& y, const ConvAxis& x, std::int64_t image,
                    std::int64_t i) {
  const Range rows = taps_of(y, i);
  const std::int64_t channels = pass.channels, tap_row = y.tap_first + rows.first * y.tap_stride,
                     from_row = i * y.step + y.offset + rows.first * y.direction,
                     to_row = y.first + i * y.stride;
  const Stored* from = pass.from + (image * pass.from_h + from_row) * pass.from_w * channels;
  Stored* to = pass.to + (image * pass.to_h + to_row) * pass.to_w * channels;
  const bool reversed = x.direction < 0;
  const auto loop = depthwise_row_for<kAdd>(x.taps, x.step, reversed);
  if (loop != nullptr)
    return loop({.from = from,
                 .weight = pass.weight + (tap_row * pass.kernel_w + x.tap_first) * channels,
                 .bias = pass.bias,
                 .to = to + x.first * channels,
                 .channels = channels,
                 .rows = rows.count(),
                 .columns = x.extent,
                 .from_row = y.direction * pass.from_w * channels,
                 .weight_row = y.tap_stride * pass.kernel_w * channels,
                 .weight_tap = x.tap_stride * channels,
                 .to_step = x.stride * channels,
                 .results = x.results,
                 .left = x.offset - (reversed ? x.taps - 1 : 0)});
  for (std::int64_t j = 0; j < x.results;) {
    const Range columns = taps_of(x, j);
    const std::int64_t ahead = j + kTile - 1;
    const bool whole =
        ahead < x.results && columns.count() == x.taps && taps_of(x, ahead).count() == x.taps;
    const std::int64_t column = j * x.step + x.offset + columns.first * x.direction,
                       tap_column = x.tap_first + columns.first * x.tap_stride;
    const Window window{.from = from + column * channels,
                        .weight = pass.weight + (tap_row * pass.kernel_w + tap_column) * channels,
                        .rows = rows.count(),
                        .columns = columns.count(),
                        .from_row = y.direction * pass.from_w * channels,
                        .from_column = x.direction * channels,
                        .from_step = x.step * channels,
                        .weight_row = y.tap_stride * pass.kernel_w * channels,
                        .weight_column = x.tap_stride * channels};
    Stored* pixel = to + (x.first + j * x.stride) * channels;
    if (whole) {
      any_depthwise_tile<kTile, kAdd>(pass, window, pixel, x.stride * channels);
    } else {
      any_depthwise_tile<1, kAdd>(pass, window, pixel, 0);
    }
    j += whole ? kTile : 1;
  }
}

void forward(const Conv2dForward& o, const ConvSizes& s, ThreadPool& threads, float* scratch) {
  if (!is_depthwise(s)) {
    GroupPass pass = group_pass(s, false);
    pass.from = stored(o.x), pass.weight = floats(o.weight), pass.bias = floats(o.bias);
    pass.to = stored(o.y);
    return sum_groups(pass, threads, scratch);
  }
  const Pass pass{.from = stored(o.x),
                  .weight = floats(o.weight),
                  .bias = floats(o.bias),
                  .to = stored(o.y),
                  .channels = s.in,
                  .from_h = s.in_h,
                  .from_w = s.in_w,
                  .to_h = s.out_h,
                  .to_w = s.out_w,
                  .kernel_w = s.kernel_w};
  const ConvAxis y = forward_axis(rows_axis(s)), x = forward_axis(columns_axis(s));
  threads.run(s.n * s.out_h, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t row = first; row < last; ++row)
      results_of_row<false>(pass, y, x, row / s.out_h, row % s.out_h);
  });
}

void backward_data(const Conv2dBackwardData& o, const ConvSizes& s, ThreadPool& threads,
                   float* scratch) {
  if (!is_depthwise(s)) {
    GroupPass pass = group_pass(s, true);
    pass.from = stored(o.dy), pass.weight = floats(o.weight), pass.to = stored(o.dx);
    pass.add = o.write == Write::kAdd;
    return sum_groups(pass, threads, scratch);
  }
  const Pass pass{.from = stored(o.dy),
                  .weight = floats(o.weight),
                  .bias = nullptr,
                  .to = stored(o.dx),
                  .channels = s.in,
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
      const ConvAxis y = backward_axis(rows_axis(s), at % s.stride);
      for (std::int64_t phase = 0; phase < phases; ++phase)
        run(pass, y, backward_axis(columns_axis(s), phase), row / s.in_h, at / s.stride);
    }
  });
}

// A row of x and of dy whose products are summed, and the sums of the taps (ky, 0), (ky, 1), ...
struct RowSum {
  const Stored *x, *dy;  // pixel 0 of the row
  float* sums;
  std::int64_t in, out, stride, padding;
};

// sums[tap] += x * dy over `count` pixels of dy, for kTaps neighboring taps of a depthwise layer.
template <int kTaps, int kVectors, class Lanes>
ENGINE_INLINE void sum_vectors(const RowSum& r, Lanes lanes, const Stored* x, const Stored* dy,
                               float* sums, std::int64_t count) {
  Floats total[kTaps][kVectors];
  for (int k = 0; k < kTaps; ++k)
    for (std::int64_t v = 0; v < kVectors; ++v)
      total[k][v] = lanes.load_from(sums + k * r.out + v * kWidth);
  for (std::int64_t j = 0; j < count; ++j, x += r.stride * r.in, dy += r.out)
    for (std::int64_t v = 0; v < kVectors; ++v) {
      const Floats gradient = lanes.load_from(dy + v * kWidth);
      for (int k = 0; k < kTaps; ++k)
        total[k][v] += lanes.load_from(x + k * r.in + v * kWidth) * gradient;
    }
  for (int k = 0; k < kTaps; ++k)
    for (std::int64_t v = 0; v < kVectors; ++v)
      lanes.store_to(sums + k * r.out + v * kWidth, total[k][v]);
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

// The sums over `rows` of dy for row ky of the kernel.
void sum_piece(const Conv2dBackwardWeights& o, const ConvSizes& s, Range rows, std::int64_t ky,
               float* sums) {
  const std::int64_t floats_of_row = weight_floats(s) / s.kernel_h;
  __builtin_memset(sums, 0, static_cast<std::size_t>(floats_of_row) * sizeof(float));
  for (std::int64_t row = rows.first; row < rows.last; ++row) {
    const std::int64_t y = row % s.out_h * s.stride + ky - s.padding;
    if (y < 0 || y >= s.in_h) continue;
    sum_depthwise_row(s, {.x = stored(o.x) + (row / s.out_h * s.in_h + y) * s.in_w * s.in,
                          .dy = stored(o.dy) + row * s.out_w * s.out,
                          .sums = sums,
                          .in = s.in,
                          .out = s.out,
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

void depthwise_weights(const Conv2dBackwardWeights& o, const ConvSizes& s, ThreadPool& threads,
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

void backward_weights(const Conv2dBackwardWeights& o, const ConvSizes& s, ThreadPool& threads,
                      float* scratch) {
  if (is_depthwise(s)) return depthwise_weights(o, s, threads, scratch);
  GroupWeights weights = group_weights_of(s);
  weights.x = stored(o.x), weights.dy = stored(o.dy), weights.dweight = floats(o.dweight);
  weights.add = o.write == Write::kAdd;
  sum_group_weights(weights, threads, scratch);
  if (o.dbias.data == nullptr) return;
  const std::int64_t rows = s.n * s.out_h, pieces = pieces_of(s);
  threads.run(pieces, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t piece = first; piece < last; ++piece)
      sum_bias(stored(o.dy), s, {rows * piece / pieces, rows * (piece + 1) / pieces},
               scratch + piece * s.out);
  });
  add_pieces(scratch, s.out, s, s.out, floats(o.dbias), weights.add, threads);
}

}  // namespace

const Conv2dTable grouped_conv2d_table{forward_scratch, forward, backward_data_scratch,
                                       backward_data};
const Conv2dWeightsTable grouped_conv2d_weights_table{weights_scratch, backward_weights};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
