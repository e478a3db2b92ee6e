// Computes convolutions of groups of several channels, and the gradient of their input. A unit of
// work copies the rows that some results read (RowBlock), and computes tiles of them. Sums are over
// rows of the kernel, taps and channels, whatever the blocks and the threads. Only for sources
// compiled once per instruction set.
#pragma once

#include "engine/ops/channel_groups/group_plan.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {

namespace group_sums {

// The floats of weights that stay in L1 beside rows of a block.
inline constexpr std::int64_t kWeightsInL1 = std::int64_t{6} << 10;

// The rows of results that a unit computes, and what they read.
struct UnitRows {
  std::int64_t image;
  Range results, source;
};

// Returns the rows of `from` that result row `row` reads through its axis.
inline Range source_rows(const GroupPass& p, std::int64_t row) {
  const ConvAxis y = axis_of(p, p.y, p.backward ? row % p.y.stride : 0);
  const std::int64_t j = p.backward ? row / p.y.stride : row;
  const Range taps = taps_of(y, j);
  if (taps.count() == 0) return {0, 0};
  const std::int64_t start = j * y.step + y.offset, first = start + taps.first * y.direction,
                     last = start + (taps.last - 1) * y.direction;
  return {smaller(first, last), larger(first, last) + 1};
}

inline UnitRows rows_of(const GroupPass& p, const Plan& plan, std::int64_t unit) {
  const std::int64_t block = unit / plan.bundle_runs % plan.row_blocks,
                     results = p.backward ? p.y.in : p.y.out;
  UnitRows rows{unit / plan.bundle_runs / plan.row_blocks,
                {block * plan.rows, smaller((block + 1) * plan.rows, results)},
                {0, 0}};
  for (std::int64_t row = rows.results.first; row < rows.results.last; ++row) {
    const Range read = source_rows(p, row);
    if (read.count() == 0) continue;
    if (rows.source.count() == 0) rows.source = read;
    rows.source = {smaller(rows.source.first, read.first), larger(rows.source.last, read.last)};
  }
  return rows;
}

// A unit: its copied rows, and the packed weights and places of its vectors.
struct Unit {
  const GroupPass& pass;
  const Plan& plan;
  UnitRows rows;
  Range bundles;
  const float *packed, *block;

  ENGINE_INLINE std::int64_t vectors() const { return bundles.count() * plan.to.vectors(); }
  // Returns vector `k` of the unit, at a column of a row of the block, at a tap and at a pixel of
  // the results.
  VectorRow vector(std::int64_t k, std::int64_t source, std::int64_t weight,
                   std::int64_t pixel) const {
    const std::int64_t each = plan.to.vectors(), b = k / each, bundle = bundles.first + b,
                       v = k % each, channel = plan.to.first(bundle) + v * kWidth;
    return {.from = block + b * plan.block.bundle() + source,
            .weight = packed + (bundle * each + v) * plan.packed_vector(pass) + weight,
            .to = pass.to + pixel * pass.to_channels + channel,
            .bias = pass.bias == nullptr ? nullptr : pass.bias + channel,
            .lanes = plan.to.lanes(bundle, v)};
  }
};

// The results of a unit of one phase along each axis: every stride-th row and column.
struct PhaseSums {
  const Unit& unit;
  Range results;  // the rows among these
  ConvAxis y, x;

  // Computes vectors [first, first + count) of the unit, 1 or 2.
  void run(std::int64_t first, int count) const {
    const GroupPass& p = unit.pass;
    const Plan& plan = unit.plan;
    const std::int64_t to_h = p.backward ? p.y.in : p.y.out, to_w = p.backward ? p.x.in : p.x.out,
                       tap_floats = plan.from.group * kWidth;
    // Taps are read from left to right; those of a gradient lie the other way.
    const bool reversed = x.direction < 0;
    const std::int64_t last = reversed ? larger(x.taps, 1) - 1 : 0, column = x.offset - last,
                       tap = x.tap_first + last * x.tap_stride;
    Row row{.of = {},
            .ins = plan.from.group,
            .rows = 0,
            .taps = x.taps,
            .step = x.step,
            .results = x.results,
            .from_row = y.direction * plan.block.row(),
            .pixel = plan.from.floats(),
            .weight_row = y.tap_stride * p.x.kernel * tap_floats,
            .weight_tap = (reversed ? -x.tap_stride : x.tap_stride) * tap_floats,
            .to_step = x.stride * p.to_channels,
            .index = plan.index,
            .add = p.add};
    const RowLoop loop = loop_for(plan.to.size > 1, x.step, count == 2);
    const std::int64_t before = larger(0, results.first - y.first + y.stride - 1) / y.stride;
    for (std::int64_t j = before; y.first + j * y.stride < results.last; ++j) {
      const Range taps = taps_of(y, j);
      const bool any = taps.count() > 0;
      const std::int64_t read = j * y.step + y.offset + taps.first * y.direction,
                         source = any ? read - unit.rows.source.first : 0,
                         tap_row = any ? y.tap_first + taps.first * y.tap_stride : 0;
      for (int v = 0; v < count; ++v)
        row.of[v] = unit.vector(
            first + v, source * plan.block.row() + (plan.block.left + column) * plan.from.floats(),
            (tap_row * p.x.kernel + tap) * tap_floats,
            (unit.rows.image * to_h + y.first + j * y.stride) * to_w + x.first);
      row.rows = taps.count();
      loop(row);
    }
  }
};

inline void run_phases(const Unit& unit, Range results) {
  const GroupPass& p = unit.pass;
  for (std::int64_t y = 0; y < unit.plan.y_phases; ++y)
    for (std::int64_t x = 0; x < unit.plan.x_phases; ++x) {
      const PhaseSums sums{unit, results, axis_of(p, p.y, y), axis_of(p, p.x, x)};
      const std::int64_t all = unit.vectors();
      std::int64_t v = 0;
      if (sums.x.results <= kPairWidth)
        for (; v + 2 <= all; v += 2) sums.run(v, 2);
      for (; v < all; ++v) sums.run(v, 1);
    }
}

inline void run_unit(const GroupPass& p, const Plan& plan, std::int64_t number, const float* packed,
                     float* block) {
  const std::int64_t run = number % plan.bundle_runs, at_once = bundles_at_once(plan.from),
                     from_h = p.backward ? p.y.out : p.y.in, from_w = p.backward ? p.x.out : p.x.in;
  const Unit unit{.pass = p,
                  .plan = plan,
                  .rows = rows_of(p, plan, number),
                  .bundles = {run * at_once, smaller((run + 1) * at_once, plan.to.bundles())},
                  .packed = packed,
                  .block = block};
  const Range source = unit.rows.source, results = unit.rows.results;
  plan.block.copy(p.from + (unit.rows.image * from_h + source.first) * from_w * p.from_channels,
                  source.count(), from_w, unit.bundles, block);
  // If the weights of all vectors stay in L1, the vectors of a row are computed one after another:
  // neighboring lines of memory are then written together.
  const bool by_rows = unit.vectors() * plan.packed_vector(p) <= kWeightsInL1;
  const std::int64_t at_a_time = by_rows ? plan.y_phases : results.count();
  for (std::int64_t first = results.first; first < results.last; first += at_a_time)
    run_phases(unit, {first, smaller(first + at_a_time, results.last)});
}

}  // namespace group_sums

// The floats of scratch for sum_groups(). Never decreases with the number of images.
inline std::int64_t group_sums_scratch(const GroupPass& p, int threads) {
  const group_sums::Plan plan = group_sums::plan_of(p, threads);
  return plan.vectors() * plan.packed_vector(p) + threads * plan.block.total();
}

inline void sum_groups(const GroupPass& p, ThreadPool& threads, float* scratch) {
  using namespace group_sums;
  const Plan plan = plan_of(p, threads.threads());
  const std::int64_t vector = plan.packed_vector(p);
  threads.run(plan.vectors(), [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t v = first; v < last; ++v) pack_vector(p, plan, v, scratch + v * vector);
  });
  float* blocks = scratch + plan.vectors() * vector;
  threads.run(plan.units(p.images), [&](std::int64_t first, std::int64_t last, int share) {
    float* block = blocks + share * plan.block.total();
    __builtin_memset(block, 0, static_cast<std::size_t>(plan.block.total()) * sizeof(float));
    for (std::int64_t unit = first; unit < last; ++unit) run_unit(p, plan, unit, scratch, block);
  });
}

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
