// Computes the gradient of the weights of groups of several channels. The rows of the output's
// gradient are divided into pieces, which depend on nothing but the sizes; a unit of work sums a
// piece for a few bundles. The sums of the pieces are added in order, and transposed into the
// gradient. Only for sources compiled once per instruction set.
#pragma once

#include "engine/ops/channel_groups/group_weight_sums.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {

// x [images, in_h, in_w, in], dy [images, out_h, out_w, out], dweight [kernel_h, kernel_w, in of a
// group, out].
struct GroupWeights {
  const Stored *x, *dy;
  float* dweight;
  std::int64_t images, groups, in, out;
  ConvAxisSizes rows, columns;
  bool add;  // to the memory of dweight
};

namespace group_weights {

// More units occupy more threads, and more pieces need more scratch.
inline constexpr std::int64_t kUnits = 48, kMaxPieces = 16, kMaxPieceFloats = 1 << 22;

struct Plan {
  BundleSide in, out;
  RowBlock x, dy;
  std::int64_t bundle_runs;  // runs of bundles_at_once() of x
  std::int64_t pieces;
  Ints index;  // first_channels() of dy

  // The sums of a piece: [bundle, vector of x, kernel_h, kernel_w, channel of dy, lane].
  std::int64_t vector_floats(const GroupWeights& o) const {
    return o.rows.kernel * o.columns.kernel * out.group * kWidth;
  }
  std::int64_t piece_floats(const GroupWeights& o) const {
    return in.bundles() * in.vectors() * vector_floats(o);
  }
};

inline Plan plan_of(const GroupWeights& o) {
  const std::int64_t ins = o.in / o.groups, outs = o.out / o.groups, size = bundle_size(outs, ins);
  Plan plan{.in = {o.in, ins, size},
            .out = {o.out, outs, size},
            .x = {},
            .dy = {},
            .bundle_runs = 1,
            .pieces = 1,
            .index = first_channels(outs, ins)};
  const ConvAxisSizes &rows = o.rows, &columns = o.columns;
  const std::int64_t read = (columns.out - 1) * columns.stride + columns.kernel - columns.padding;
  plan.x = {plan.in, 1, columns.padding + larger(columns.in, read), columns.padding};
  plan.dy = {plan.out, 1, columns.out, 0};
  plan.bundle_runs = quotient_up(plan.in.bundles(), bundles_at_once(plan.in));
  const std::int64_t at_once = bundles_at_once(plan.in), x_row = at_once * plan.x.bundle(),
                     dy_row = at_once * plan.dy.bundle();
  const auto rows_read = [&](std::int64_t results) {
    return smaller(rows.in, (results - 1) * rows.stride + rows.kernel);
  };
  std::int64_t results = rows.out;
  while (results > 1 && rows_read(results) * x_row + results * dy_row > kBlockFloats) --results;
  plan.x.rows = rows_read(results);
  plan.dy.rows = results;
  const std::int64_t most = larger(kMaxPieceFloats / plan.piece_floats(o), 1);
  plan.pieces = smaller(smaller(kMaxPieces, quotient_up(kUnits, plan.bundle_runs)),
                        smaller(most, larger(o.images * rows.out, 1)));
  return plan;
}

// Adds all taps of a row of the kernel and all channels of dy.
inline void add_kernel_row(const GroupWeights& o, const Plan& plan, const Sums& all) {
  const bool permuted = kCanPermute && plan.out.size > 1;
  for (std::int64_t tap = 0; tap < o.columns.kernel;) {
    const std::int64_t taps = smaller(kTaps, o.columns.kernel - tap);
    Sums s = all;
    s.x += tap * s.x_tap;
    s.sums += tap * s.sums_tap;
    for (std::int64_t c = 0; c < plan.out.group;) {
      const std::int64_t outs = outs_at_once(plan.out.group - c);
      (permuted ? loop_for<kCanPermute>(taps, outs) : loop_for<false>(taps, outs))(s);
      s.sums += outs * kWidth;
      if (permuted)
        s.index += static_cast<std::int32_t>(outs);
      else
        s.dy += outs;
      c += outs;
    }
    tap += taps;
  }
}

// Rows of dy in one image, and the copied rows of x that they read.
struct BlockRows {
  std::int64_t image;
  Range dy, x;
};

inline BlockRows block_rows(const GroupWeights& o, const Plan& plan, Range piece) {
  const std::int64_t image = piece.first / o.rows.out, first = piece.first % o.rows.out,
                     last =
                         smaller(smaller(first + plan.dy.rows, o.rows.out), first + piece.count()),
                     top = first * o.rows.stride - o.rows.padding,
                     bottom = (last - 1) * o.rows.stride - o.rows.padding + o.rows.kernel;
  const std::int64_t x_first = smaller(larger(top, 0), o.rows.in);
  return {image, {first, last}, {x_first, larger(x_first, smaller(bottom, o.rows.in))}};
}

// The copied rows of a bundle.
struct BundleBlocks {
  const float *x, *dy;
};

inline void add_bundle(const GroupWeights& o, const Plan& plan, const BlockRows& rows,
                       const BundleBlocks& blocks, float* sums) {
  const std::int64_t tap_floats = plan.out.group * kWidth;
  const ConvAxisSizes& y = o.rows;
  for (std::int64_t v = 0; v < plan.in.vectors(); ++v)
    for (std::int64_t ky = 0; ky < y.kernel; ++ky, sums += o.columns.kernel * tap_floats) {
      // The rows of dy that read inside of x through this row of the kernel.
      const std::int64_t before = y.padding - ky, after = y.in - 1 + y.padding - ky;
      const std::int64_t first =
                             larger(rows.dy.first, before > 0 ? quotient_up(before, y.stride) : 0),
                         last = after < 0 ? 0 : smaller(rows.dy.last, after / y.stride + 1);
      if (first >= last) continue;
      const std::int64_t x_row = first * y.stride + ky - y.padding - rows.x.first;
      add_kernel_row(o, plan,
                     {.x = blocks.x + x_row * plan.x.row() + v * kWidth,
                      .dy = blocks.dy + (first - rows.dy.first) * plan.dy.row(),
                      .sums = sums,
                      .rows = last - first,
                      .pixels = o.columns.out,
                      .x_row = y.stride * plan.x.row(),
                      .x_step = o.columns.stride * plan.in.floats(),
                      .x_tap = plan.in.floats(),
                      .dy_row = plan.dy.row(),
                      .dy_pixel = plan.out.floats(),
                      .sums_tap = tap_floats,
                      .index = plan.index});
    }
}

// Sums a piece for a run of bundles; `blocks` has room for the copied rows.
inline void sum_piece(const GroupWeights& o, const Plan& plan, std::int64_t unit, float* sums,
                      float* blocks) {
  const std::int64_t run = unit % plan.bundle_runs, piece = unit / plan.bundle_runs,
                     at_once = bundles_at_once(plan.in), rows = o.images * o.rows.out,
                     bundle_floats = plan.in.vectors() * plan.vector_floats(o);
  const Range bundles{run * at_once, smaller((run + 1) * at_once, plan.in.bundles())};
  float* own = sums + piece * plan.piece_floats(o) + bundles.first * bundle_floats;
  __builtin_memset(own, 0,
                   static_cast<std::size_t>(bundles.count() * bundle_floats) * sizeof(float));
  float* dy = blocks + at_once * plan.x.bundle();
  Range left{rows * piece / plan.pieces, rows * (piece + 1) / plan.pieces};
  while (left.count() > 0) {
    const BlockRows block = block_rows(o, plan, left);
    plan.x.copy(o.x + (block.image * o.rows.in + block.x.first) * o.columns.in * o.in,
                block.x.count(), o.columns.in, bundles, blocks);
    plan.dy.copy(o.dy + (block.image * o.rows.out + block.dy.first) * o.columns.out * o.out,
                 block.dy.count(), o.columns.out, bundles, dy);
    for (std::int64_t b = 0; b < bundles.count(); ++b)
      add_bundle(o, plan, block, {blocks + b * plan.x.bundle(), dy + b * plan.dy.bundle()},
                 own + b * bundle_floats);
    left.first += block.dy.count();
  }
}

// Writes the sums of one tap of one group into dweight.
template <bool kAdd>
void write_group(const GroupWeights& o, const Plan& plan, std::int64_t tap, std::int64_t group,
                 const float* sums) {
  const std::int64_t ins = plan.in.group, outs = plan.out.group, size = plan.in.size;
  for (std::int64_t i = 0; i < ins; i += kWidth) {
    const std::int64_t vector = group / size * plan.in.vectors() + i / kWidth;
    transpose_matrix<kAdd>(
        {.from = sums + vector * plan.vector_floats(o) + tap * outs * kWidth + group % size * ins,
         .rows = outs,
         .columns = smaller(kWidth, ins - i),
         .from_stride = kWidth,
         .to = o.dweight + (tap * ins + i) * o.out + group * outs,
         .to_stride = o.out});
  }
}

}  // namespace group_weights

// The floats of scratch for sum_group_weights(). Never decreases with the number of images.
inline std::int64_t group_weights_scratch(const GroupWeights& o, int threads) {
  const group_weights::Plan plan = group_weights::plan_of(o);
  return plan.pieces * plan.piece_floats(o) +
         threads * bundles_at_once(plan.in) * (plan.x.bundle() + plan.dy.bundle());
}

inline void sum_group_weights(const GroupWeights& o, ThreadPool& threads, float* scratch) {
  using namespace group_weights;
  const Plan plan = plan_of(o);
  const std::int64_t floats = plan.piece_floats(o), taps = o.rows.kernel * o.columns.kernel,
                     block = bundles_at_once(plan.in) * (plan.x.bundle() + plan.dy.bundle());
  threads.run(plan.pieces * plan.bundle_runs,
              [&](std::int64_t first, std::int64_t last, int share) {
                float* blocks = scratch + plan.pieces * floats + share * block;
                __builtin_memset(blocks, 0, static_cast<std::size_t>(block) * sizeof(float));
                for (std::int64_t unit = first; unit < last; ++unit)
                  sum_piece(o, plan, unit, scratch, blocks);
              });
  if (plan.pieces > 1)
    run_flat(threads, floats, [&](auto lanes, std::int64_t i) {
      Floats total = lanes.load_from(scratch + i);
      for (std::int64_t piece = 1; piece < plan.pieces; ++piece)
        total += lanes.load_from(scratch + piece * floats + i);
      lanes.store_to(scratch + i, total);
    });
  threads.run(taps * o.groups, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t unit = first; unit < last; ++unit) {
      const std::int64_t tap = unit / o.groups, group = unit % o.groups;
      o.add ? write_group<true>(o, plan, tap, group, scratch)
            : write_group<false>(o, plan, tap, group, scratch);
    }
  });
}

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
