// Plans convolutions of groups of several channels: what a unit of work reads and computes, and the
// weights in the order in which tiles read them. Only for sources compiled once per instruction
// set.
#pragma once

#include "engine/ops/channel_groups/group_tiles.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {

// A pass: `to` is the sum over the taps that a pixel reads of `from`, [images, h, w, channels]
// both. The sizes are those of the convolution; for the gradient of its input (`backward`), `from`
// is the output's gradient. `weight` is [kernel_h, kernel_w, in of a group, out].
struct GroupPass {
  const Stored* from;
  const float *weight, *bias;  // bias: null if there is none
  Stored* to;
  std::int64_t images, groups, from_channels, to_channels;
  ConvAxisSizes y, x;
  bool backward, add;  // add: to the memory of `to`
};

namespace group_sums {

// Sizes that a pass derives from its own.
struct Plan {
  BundleSide from, to;
  RowBlock block;            // of `from`
  std::int64_t rows;         // results of a unit
  std::int64_t row_blocks;   // of an image
  std::int64_t bundle_runs;  // runs of bundles_at_once()
  std::int64_t y_phases, x_phases;
  Ints index;  // first_channels()

  std::int64_t units(std::int64_t images) const { return images * row_blocks * bundle_runs; }
  std::int64_t vectors() const { return to.bundles() * to.vectors(); }
  // The floats of the packed weights of a vector: [kernel_h, kernel_w, channel of from, lane].
  std::int64_t packed_vector(const GroupPass& p) const {
    return p.y.kernel * p.x.kernel * from.group * kWidth;
  }
};

inline std::int64_t phases_of(const GroupPass& p, const ConvAxisSizes& sizes) {
  return p.backward ? smaller(sizes.stride, sizes.in) : 1;
}
inline ConvAxis axis_of(const GroupPass& p, const ConvAxisSizes& sizes, std::int64_t first) {
  return p.backward ? backward_axis(sizes, first) : forward_axis(sizes);
}

// Returns the columns that the tiles of a row read, from the leftmost one on; at least those of
// `from`.
inline Range columns_of(const GroupPass& p, std::int64_t phases) {
  Range all{0, p.backward ? p.x.out : p.x.in};
  for (std::int64_t phase = 0; phase < phases; ++phase) {
    const ConvAxis axis = axis_of(p, p.x, phase);
    const std::int64_t reach = (larger(axis.taps, 1) - 1) * axis.direction;
    const std::int64_t last = (results_of_tiles(axis.results) - 1) * axis.step + axis.offset;
    all.first = smaller(all.first, axis.offset + smaller(reach, 0));
    all.last = larger(all.last, last + larger(reach, 0) + 1);
  }
  return all;
}

// Returns an upper bound of the rows that `results` neighboring rows of results read.
inline std::int64_t rows_read(const GroupPass& p, std::int64_t results) {
  const std::int64_t all = p.backward ? p.y.out : p.y.in;
  const std::int64_t rows =
      p.backward ? (results + p.y.stride - 2) / p.y.stride + (p.y.kernel - 1) / p.y.stride + 1
                 : (results - 1) * p.y.stride + p.y.kernel;
  return smaller(rows, all);
}

inline Plan plan_of(const GroupPass& p, int threads) {
  const std::int64_t from_group = p.from_channels / p.groups, to_group = p.to_channels / p.groups,
                     size = bundle_size(from_group, to_group),
                     results = p.backward ? p.y.in : p.y.out;
  Plan plan{.from = {p.from_channels, from_group, size},
            .to = {p.to_channels, to_group, size},
            .block = {},
            .rows = results,
            .row_blocks = 1,
            .bundle_runs = 1,
            .y_phases = phases_of(p, p.y),
            .x_phases = phases_of(p, p.x),
            .index = first_channels(from_group, to_group)};
  const Range columns = columns_of(p, plan.x_phases);
  plan.block = {plan.from, 1, columns.count(), -columns.first};
  plan.bundle_runs = quotient_up(plan.from.bundles(), bundles_at_once(plan.from));
  const std::int64_t rows_in_cache = kBlockFloats / larger(1, plan.block.total());
  while (plan.rows > 1 && rows_read(p, plan.rows) > rows_in_cache) --plan.rows;
  if (threads > 1) {  // a few units for each thread
    const std::int64_t all = p.images * results * plan.bundle_runs;
    plan.rows = smaller(plan.rows, larger(1, all / (std::int64_t{4} * threads)));
  }
  plan.block.rows = rows_read(p, plan.rows);
  plan.row_blocks = quotient_up(results, plan.rows);
  return plan;
}

// Packs the weights of one vector of results; lanes that are no channels have zeros.
inline void pack_vector(const GroupPass& p, const Plan& plan, std::int64_t vector, float* to) {
  const std::int64_t v = vector % plan.to.vectors(), bundle = vector / plan.to.vectors(),
                     first = plan.to.first(bundle) + v * kWidth, lanes = plan.to.lanes(bundle, v),
                     ins = plan.from.group, outs = plan.to.group, taps = p.y.kernel * p.x.kernel;
  if (!p.backward) {
    for (std::int64_t row = 0; row < taps * ins; ++row)
      store(to + row * kWidth, load_partial(p.weight + row * p.to_channels + first, lanes));
    return;
  }
  if (lanes < kWidth)
    __builtin_memset(to, 0, static_cast<std::size_t>(taps * ins * kWidth) * sizeof(float));
  for (std::int64_t lane = 0; lane < lanes;) {
    const std::int64_t group = (first + lane) / outs, row = (first + lane) % outs,
                       rows = smaller(outs - row, lanes - lane);
    for (std::int64_t tap = 0; tap < taps; ++tap)
      transpose_matrix<false>(
          {.from = p.weight + (tap * outs + row) * p.from_channels + group * ins,
           .rows = rows,
           .columns = ins,
           .from_stride = p.from_channels,
           .to = to + tap * ins * kWidth + lane,
           .to_stride = kWidth});
    lane += rows;
  }
}

}  // namespace group_sums

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
