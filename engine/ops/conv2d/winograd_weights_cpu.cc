// Winograd's convolutions backward to their weights, F(3x3, 4x4) and F(5x5, 2x2): the gradient of
// the 3 x 3 taps is a convolution of each tile of 6 x 6 inputs with the 4 x 4 gradients of its
// outputs, summed over all tiles. winograd_tiles.h describes the method.
//
// Tiles of x are transformed to V [36][tiles][in], those of dy to D [36][tiles][out] in panels; M =
// V^T D, 36 matrix products summed over tiles, is transformed to dweight. Tiles are processed in
// groups whose V and D stay in the last-level cache, M in blocks of a panel x some input channels,
// which stay in L2. Threads share a group: each transforms some of its tiles, then computes some of
// the blocks. No sum depends on the number of threads. Bound by the FMA rate.
#include "engine/ops/common/cpu_operands.h"
#include "engine/ops/conv2d/conv2d_maps.h"
#include "engine/ops/conv2d/winograd_cpu.h"
#include "engine/ops/conv2d/winograd_tiles.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kGroupFloats = 2 * 1024 * 1024;  // V and D together: 8 MB
// 5 x 5: tiles hold fewer outputs, so more of them have to be summed; as sums of 25 gradients, not
// of 36 products of larger entries, they lose less accuracy. Without fused multiply-adds every
// product is rounded as well, and sums have to be shorter.
#if (defined(__FMA__) || defined(__ARM_FEATURE_FMA)) && !defined(ENGINE_UNFUSED)
constexpr std::int64_t kExactSteps5 = kExactSteps, kGroupTiles5 = 4 * kExactSteps5;
#else
constexpr std::int64_t kExactSteps5 = 8, kGroupTiles5 = 8 * kExactSteps5;
#endif
constexpr std::int64_t kRows = 70;  // rows of M processed together
constexpr std::int64_t kProductFloats = kTilePoints * point_stride(kRows * kPanel);  // per thread
constexpr std::int64_t kSumRows = 256;  // rows of dy that are summed at a time

struct Plan {
  TileMap tiles;
  std::int64_t count, group;  // total number of tiles; maximum processed together
  std::int64_t pitch;         // floats of a tile in V
  std::int64_t panels;
  std::int64_t v_floats, d_floats, zeros;
};

Plan make_plan(const ConvSizes& s) {
  Plan p{TileMap(s.out_h, s.out_w, tile_out(s.kernel_h)), 0, 0, 0, 0, 0, 0, 0};
  p.count = s.n * p.tiles.of_image();
  p.pitch = tile_floats(s.in);
  p.panels = panel_count(s.out);
  const std::int64_t floats = kTilePoints * (p.pitch + p.panels * kPanel);
  const std::int64_t fit = larger(kExactSteps, kGroupFloats / floats);
  p.group = smaller(p.count, s.kernel_h == 5 ? smaller(kGroupTiles5, fit) : fit);
  p.v_floats = kTilePoints * point_stride(p.group * p.pitch);
  p.d_floats = kTilePoints * point_stride(p.group * p.panels * kPanel);
  p.zeros = round_up_16(larger(s.in, s.out));
  return p;
}

std::int64_t scratch_floats(const ConvSizes& s, int threads) {
  const Plan p = make_plan(s);
  return p.v_floats + p.d_floats + p.zeros + threads * kProductFloats;
}

struct Work {
  const ConvSizes& s;
  const Plan& p;
  const Stored *x, *dy, *zeros;
  float *dweight, *v, *d, *m;
};

// Transforms tiles [first, last) of the group of `size` tiles that starts at tile `start`.
template <int kTaps>
void transform_tiles(const Work& w, std::int64_t start, std::int64_t size, std::int64_t first,
                     std::int64_t last) {
  constexpr int kOut = tile_out(kTaps);
  const ConvSizes& s = w.s;
  const std::int64_t v_stride = point_stride(size * w.p.pitch);
  const std::int64_t d_stride = point_stride(size * w.p.panels * kPanel);
  if (first == last) return;
  TilePixels<kTileSide> pixels(w.p.tiles, w.p.count, s.padding,
                               {w.x, s.in_h, s.in_w, s.in, w.zeros}, start + first);
  TilePixels<kOut> gradients(w.p.tiles, w.p.count, 0, {w.dy, s.out_h, s.out_w, s.out, w.zeros},
                             start + first);
  for (std::int64_t tile = first; tile < last; ++tile) {
    pixels.go_to(start + tile);
    float* v = w.v + tile * w.p.pitch;
    for_each_vector(0, s.in, [&](auto lanes, std::int64_t i) {
      winograd::transform<winograd::Input>(
          [&](int place) { return pixels.load_from(lanes, place, i); },
          [&](int point, Floats value) { store(v + point * v_stride + i, value); });
    });
    gradients.go_to(start + tile);
    for_each_vector(0, s.out, [&](auto lanes, std::int64_t i) {
      const std::int64_t panel = i / kPanel;
      float* d = w.d + panel * kPanel * size + tile * panel_width(s.out, panel) + i % kPanel;
      winograd::transform<winograd::Evaluate<kOut, false>>(
          [&](int place) { return gradients.load_from(lanes, place, i); },
          [&](int point, Floats value) { store(d + point * d_stride, value); });
    });
  }
}

// Multiplies `rows` input channels of one panel: m [36][rows][width].
void multiply(const Work& w, std::int64_t size, std::int64_t panel, std::int64_t first_row,
              std::int64_t rows, float* m) {
  const EvenCut tiles(rows, kMaxStridedRows),
      chunks(size, w.s.kernel_h == 5 ? kExactSteps5 : kExactSteps);
  const std::int64_t width = panel_width(w.s.out, panel);
  for (int point = 0; point < kTilePoints; ++point) {
    const float* v = w.v + point * point_stride(size * w.p.pitch) + first_row;
    const float* d = w.d + point * point_stride(size * w.p.panels * kPanel) + panel * kPanel * size;
    for (std::int64_t t = 0; t < tiles.pieces; ++t) {
      const AdjacentTile run = adjacent_tile_for<false>(tiles.size(t), width);
      TileOutput out{m + point * point_stride(rows * width) + tiles.start(t) * width, width, false,
                     nullptr, false};
      for (std::int64_t chunk = 0; chunk < chunks.pieces; ++chunk, out.add = true) {
        const AdjacentRows tile{v + chunks.start(chunk) * w.p.pitch + tiles.start(t), nullptr,
                                w.p.pitch, chunks.size(chunk), width};
        run(tile, d + chunks.start(chunk) * width, out);
      }
    }
  }
}

// Transforms m to dweight.
template <int kTaps, bool kAdd>
void transform_products(const Work& w, std::int64_t panel, std::int64_t first_row,
                        std::int64_t rows, const float* m) {
  const std::int64_t column = panel * kPanel, width = panel_width(w.s.out, panel);
  const std::int64_t stride = point_stride(rows * width);
  for (std::int64_t row = 0; row < rows; ++row, m += width) {
    float* to = w.dweight + (first_row + row) * w.s.out + column;
    for_each_vector(0, smaller(w.s.out - column, kPanel), [&](auto lanes, std::int64_t i) {
      winograd::transform<winograd::Interpolate<kTaps, true>>(
          [&](int point) { return load(m + point * stride + i); },
          [&](int tap, Floats value) { put<kAdd>(lanes, to + tap * w.s.in * w.s.out + i, value); });
    });
  }
}

// Sums columns [first, last) of dy [rows, out].
void sum_columns(const Stored* dy, std::int64_t rows, std::int64_t out, std::int64_t first,
                 std::int64_t last, bool add, float* dbias) {
  for_each_vector(first, last, [=](auto lanes, std::int64_t i) {
    Floats total = add ? lanes.load_from(dbias + i) : zero();
    for (std::int64_t row = 0; row < rows; row += kSumRows) {
      Floats sum = zero();
      for (std::int64_t k = row; k < smaller(rows, row + kSumRows); ++k)
        sum += lanes.load_from(dy + k * out + i);
      total += sum;
    }
    lanes.store_to(dbias + i, total);
  });
}

template <int kTaps>
void run_taps(const Conv2dBackwardWeights& o, const ConvSizes& s, ThreadPool& pool,
              float* scratch) {
  const Plan p = make_plan(s);
  bool add = o.write == Write::kAdd;
  if (float* dbias = floats(o.dbias); dbias != nullptr) {
    const Stored* dy = stored(o.dy);
    pool.run(panel_count(s.out), [&](std::int64_t first, std::int64_t last, int) {
      sum_columns(dy, s.n * s.out_h * s.out_w, s.out, first * kPanel, smaller(last * kPanel, s.out),
                  add, dbias);
    });
  }
  if (p.count == 0) {
    if (!add)
      __builtin_memset(floats(o.dweight), 0,
                       static_cast<unsigned long>(kTaps * kTaps * s.in * s.out) * sizeof(float));
    return;
  }
  __builtin_memset(scratch, 0, static_cast<unsigned long>(p.zeros) * sizeof(float));
  Work w{s,
         p,
         stored(o.x),
         stored(o.dy),
         reinterpret_cast<const Stored*>(scratch),
         floats(o.dweight),
         nullptr,
         nullptr,
         nullptr};
  w.v = scratch + p.zeros;
  w.d = w.v + p.v_floats;
  w.m = w.d + p.d_floats;
  const EvenCut groups(p.count, p.group), rows(s.in, kRows);
  for (std::int64_t group = 0; group < groups.pieces; ++group, add = true) {
    const std::int64_t size = groups.size(group);
    pool.run(size, [&](std::int64_t first, std::int64_t last, int) {
      transform_tiles<kTaps>(w, groups.start(group), size, first, last);
    });
    pool.run(p.panels * rows.pieces, [&](std::int64_t first, std::int64_t last, int thread) {
      float* m = w.m + thread * kProductFloats;
      for (std::int64_t i = first; i < last; ++i) {
        const std::int64_t panel = i / rows.pieces, row = rows.start(i % rows.pieces),
                           count = rows.size(i % rows.pieces);
        multiply(w, size, panel, row, count, m);
        if (add) {
          transform_products<kTaps, true>(w, panel, row, count, m);
        } else {
          transform_products<kTaps, false>(w, panel, row, count, m);
        }
      }
    });
  }
}

void run(const Conv2dBackwardWeights& o, const ConvSizes& s, ThreadPool& pool, float* scratch) {
  if (s.kernel_h == 3) {
    run_taps<3>(o, s, pool, scratch);
  } else {
    run_taps<5>(o, s, pool, scratch);
  }
}

}  // namespace

const Conv2dWeightsTable winograd_weights_table{scratch_floats, run};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
