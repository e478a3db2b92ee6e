// Winograd's convolutions F(4x4, 3x3) and F(2x2, 5x5), forward and backward to the input, which is
// a forward pass over dy with the weights rotated and transposed. winograd_tiles.h describes the
// method.
//
// Tiles of the input are transformed to V [36][tiles][in], the weights to U [36][in][out], and M =
// V U, 36 matrix products, is transformed to tiles of the output. All intermediate results stay in
// the caches. Tiles are processed in blocks, output channels in panels. The weights of a panel are
// transformed a chunk of input channels at a time, right before their use. A block has enough tiles
// to amortize repeating that. If all weights are one chunk of one panel, they are transformed once.
// Each thread processes blocks of tiles; if there are too few blocks, all threads share the tiles'
// V and process panels. Bound by the FMA rate.
#include "engine/ops/conv2d/winograd_cpu.h"
#include "engine/ops/common/cpu_operands.h"
#include "engine/ops/conv2d/conv2d_maps.h"
#include "engine/ops/conv2d/winograd_tiles.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kBlockTiles = 96;     // processed together
constexpr std::int64_t kChunkChannels = 64;  // input channels whose weights are transformed
                                             // together
constexpr std::int64_t kFewTiles = 48;       // per thread: below this, the threads divide panels
                                             // instead

// A convolution of stride 1 in either direction: `in` and `out` refer to this direction.
struct Convolution {
  std::int64_t taps = 0;   // along a side
  TileMap tiles;           // tiles of the output
  std::int64_t count = 0;  // number of tiles
  std::int64_t h = 0, w = 0, in = 0, out = 0, padding = 0;
  bool backward = false;
  const Stored* from = nullptr;
  const float *weight = nullptr, *bias = nullptr;
  Stored* to = nullptr;
  bool add = false;
};

// ---- the weights of a panel

// Transforms input channels [first, first + count) to u [36][count][width]. They pass through
// `packed`, tap by tap: reading all taps at once would thrash the cache.
template <int kTaps>
void transform_weights(const Convolution& c, std::int64_t first, std::int64_t count,
                       std::int64_t panel, float* packed, float* u) {
  const std::int64_t column = panel * kPanel, width = panel_width(c.out, panel);
  const std::int64_t columns = smaller(c.out - column, kPanel),
                     stride = point_stride(count * width);
  for (std::int64_t tap = 0; tap < kTaps * kTaps; ++tap) {
    float* to = packed + tap * stride;
    if (c.backward) {
      pack_columns(c.weight + ((kTaps * kTaps - 1 - tap) * c.out + column) * c.in + first, c.in,
                   count, columns, width, to);
    } else {
      pack_rows(c.weight + (tap * c.in + first) * c.out + column, c.out, count, columns, to);
    }
  }
  for (std::int64_t i = 0; i < count * width; i += kWidth) {
    winograd::transform<winograd::Evaluate<kTaps, true>>(
        [&](int tap) { return load(packed + tap * stride + i); },
        [&](int point, Floats value) { store(u + point * stride + i, value); });
  }
}

// ---- tiles

// Transforms tiles [first, last) to v [36][..][tile_floats(in)]; `stride` is the distance between
// points.
void transform_input(const Convolution& c, std::int64_t first, std::int64_t last,
                     const Stored* zeros, float* v, std::int64_t stride) {
  if (first == last) return;
  TilePixels<kTileSide> pixels(c.tiles, c.count, c.padding, {c.from, c.h, c.w, c.in, zeros}, first);
  for (std::int64_t tile = first; tile < last; ++tile, v += tile_floats(c.in)) {
    pixels.go_to(tile);
    for_each_vector(0, c.in, [&](auto lanes, std::int64_t i) {
      winograd::transform<winograd::Input>(
          [&](int place) { return pixels.load_from(lanes, place, i); },
          [&](int point, Floats value) { store(v + point * stride + i, value); });
    });
  }
}

template <int kOut, bool kAdd>
void transform_output(const Convolution& c, std::int64_t first, std::int64_t last,
                      std::int64_t panel, Stored* sink, const float* m, std::int64_t stride) {
  const std::int64_t column = panel * kPanel, width = panel_width(c.out, panel);
  for (std::int64_t tile = first; tile < last; ++tile, m += width) {
    Stored* pixel[kOut * kOut];
    find_pixels<kOut, Stored>(c.tiles, tile, 0, {c.to + column, c.tiles.h, c.tiles.w, c.out, sink},
                              pixel);
    for_each_vector(0, smaller(c.out - column, kPanel), [&](auto lanes, std::int64_t i) {
      const Floats bias = c.bias == nullptr ? zero() : lanes.load_from(c.bias + column + i);
      winograd::transform<winograd::Interpolate<kOut, false>>(
          [&](int point) { return load(m + point * stride + i); },
          [&](int place, Floats value) { put<kAdd>(lanes, pixel[place] + i, value + bias); });
    });
  }
}

// ---- products

// The buffers of one thread.
struct Buffers {
  float *packed, *u, *m;
  Stored* sink;
};

// V [36][rows of `pitch`][steps]: the transformed tiles of a block, each point `stride` apart.
struct Transformed {
  const float* v;
  std::int64_t pitch, stride;
};

// m [36][rows][width] += V * u [36][steps][width], or = without `add`.
void multiply(std::int64_t rows, std::int64_t steps, std::int64_t width, const Transformed& from,
              const float* u, float* m, bool add) {
  const std::int64_t pitch = from.pitch;
  const float* v = from.v;
  const EvenCut tiles(rows, kMaxPointerRows), chunks(steps, kExactSteps);
  std::int64_t a_row[kMaxPointerRows], c_row[kMaxPointerRows];
  for (int i = 0; i < kMaxPointerRows; ++i) a_row[i] = i * pitch, c_row[i] = i * width;
  for (int point = 0; point < kTilePoints; ++point) {
    for (std::int64_t t = 0; t < tiles.pieces; ++t) {
      TileOutput out{m + tiles.start(t) * width, width, add, nullptr, false};
      const PointerTile run = pointer_tile_for<false>(tiles.size(t), width);
      for (std::int64_t chunk = 0; chunk < chunks.pieces; ++chunk) {
        const PointerRows tile{v + tiles.start(t) * pitch + chunks.start(chunk), a_row, nullptr,
                               chunks.size(chunk), c_row};
        run(tile, u + chunks.start(chunk) * width, out);
        out.add = true;
      }
    }
    v += from.stride, u += point_stride(steps * width), m += point_stride(rows * width);
  }
}

// Tiles [first, last) and their V.
struct TileBlock {
  std::int64_t first, last;
  const float* v;
  std::int64_t v_stride;
};

// `weights`: false where buffers.u has them already.
template <int kTaps>
void run_panel(const Convolution& c, const TileBlock& block, std::int64_t panel,
               const Buffers& buffers, bool weights = true) {
  const std::int64_t first = block.first, last = block.last, rows = last - first;
  const std::int64_t width = panel_width(c.out, panel);
  const std::int64_t m_stride = point_stride(rows * width);
  const EvenCut chunks(c.in, kChunkChannels);
  for (std::int64_t chunk = 0; chunk < chunks.pieces; ++chunk) {
    if (weights)
      transform_weights<kTaps>(c, chunks.start(chunk), chunks.size(chunk), panel, buffers.packed,
                               buffers.u);
    multiply(rows, chunks.size(chunk), width,
             {block.v + chunks.start(chunk), tile_floats(c.in), block.v_stride}, buffers.u,
             buffers.m, chunk > 0);
  }
  if (c.add) {
    transform_output<tile_out(kTaps), true>(c, first, last, panel, buffers.sink, buffers.m,
                                            m_stride);
  } else {
    transform_output<tile_out(kTaps), false>(c, first, last, panel, buffers.sink, buffers.m,
                                             m_stride);
  }
}

// ---- the whole

// Per thread, in floats, without V.
constexpr std::int64_t kWeightFloats = kTilePoints * point_stride(kChunkChannels * kPanel),
                       kProductFloats = kTilePoints * point_stride(kBlockTiles * kPanel);
std::int64_t packed_floats(const Convolution& c) {
  return c.taps * c.taps * point_stride(kChunkChannels * kPanel);
}
std::int64_t buffer_floats(const Convolution& c) {
  return packed_floats(c) + kWeightFloats + kProductFloats + kPanel;
}

std::int64_t v_stride(const Convolution& c, std::int64_t tiles) {
  return point_stride(tiles * tile_floats(c.in));
}

bool by_blocks(const Convolution& c, int threads) { return c.count >= kFewTiles * threads; }

// The number of tiles whose V each thread holds, or all threads together.
std::int64_t held_tiles(const Convolution& c, int threads) {
  return smaller(by_blocks(c, threads) ? (c.count + threads - 1) / threads : c.count, kBlockTiles);
}

std::int64_t scratch_floats(const Convolution& c, int threads) {
  // Fewer images may have few tiles, of which more are then held together.
  const std::int64_t joint = v_stride(c, smaller(c.count, kBlockTiles));
  const std::int64_t apart =
      by_blocks(c, threads) ? threads * v_stride(c, held_tiles(c, threads)) : 0;
  return round_up_16(c.in) + threads * buffer_floats(c) + kTilePoints * larger(joint, apart);
}

Buffers buffers_of(const Convolution& c, float* scratch, int thread) {
  Buffers b{};
  b.packed = scratch + thread * buffer_floats(c);
  b.u = b.packed + packed_floats(c);
  b.m = b.u + kWeightFloats;
  b.sink = reinterpret_cast<Stored*>(b.m + kProductFloats);
  return b;
}

template <int kTaps>
void run(const Convolution& c, ThreadPool& pool, float* scratch) {
  const auto* zeros = reinterpret_cast<const Stored*>(scratch);
  __builtin_memset(scratch, 0, static_cast<unsigned long>(c.in) * sizeof(float));
  float* buffers = scratch + round_up_16(c.in);
  float* all_v = buffers + pool.threads() * buffer_floats(c);
  const std::int64_t panels = panel_count(c.out), held = held_tiles(c, pool.threads());
  if (by_blocks(c, pool.threads())) {
    const bool same_weights = panels == 1 && c.in <= kChunkChannels;
    pool.run(c.count, [&](std::int64_t begin, std::int64_t end, int thread) {
      float* v = all_v + thread * kTilePoints * v_stride(c, held);
      const EvenCut blocks(end - begin, held);
      for (std::int64_t b = 0; b < blocks.pieces; ++b) {
        const std::int64_t first = begin + blocks.start(b), last = begin + blocks.start(b + 1);
        const std::int64_t stride = v_stride(c, last - first);
        transform_input(c, first, last, zeros, v, stride);
        for (std::int64_t panel = 0; panel < panels; ++panel)
          run_panel<kTaps>(c, {first, last, v, stride}, panel, buffers_of(c, buffers, thread),
                           b == 0 || !same_weights);
      }
    });
    return;
  }
  const EvenCut blocks(c.count, kBlockTiles);
  for (std::int64_t b = 0; b < blocks.pieces; ++b) {
    const std::int64_t start = blocks.start(b), size = blocks.size(b);
    const std::int64_t stride = v_stride(c, size);
    pool.run(size, [&](std::int64_t first, std::int64_t last, int) {
      transform_input(c, start + first, start + last, zeros, all_v + first * tile_floats(c.in),
                      stride);
    });
    pool.run(panels, [&](std::int64_t first, std::int64_t last, int thread) {
      for (std::int64_t panel = first; panel < last; ++panel)
        run_panel<kTaps>(c, {start, start + size, all_v, stride}, panel,
                         buffers_of(c, buffers, thread));
    });
  }
}

void run(const Convolution& c, ThreadPool& pool, float* scratch) {
  if (c.taps == 3) {
    run<3>(c, pool, scratch);
  } else {
    run<5>(c, pool, scratch);
  }
}

// Returns the forward convolution without its operands.
Convolution forward_convolution(const ConvSizes& s) {
  Convolution c{s.kernel_h, TileMap(s.out_h, s.out_w, tile_out(s.kernel_h))};
  c.count = s.n * c.tiles.of_image();
  c.h = s.in_h, c.w = s.in_w, c.in = s.in, c.out = s.out, c.padding = s.padding;
  return c;
}

Convolution backward_convolution(const ConvSizes& s) {
  Convolution c{s.kernel_h, TileMap(s.in_h, s.in_w, tile_out(s.kernel_h))};
  c.count = s.n * c.tiles.of_image();
  c.h = s.out_h, c.w = s.out_w, c.in = s.out, c.out = s.in;
  c.padding = s.kernel_h - 1 - s.padding, c.backward = true;
  return c;
}

std::int64_t forward_scratch(const ConvSizes& s, int threads) {
  return scratch_floats(forward_convolution(s), threads);
}

void forward(const Conv2dForward& o, const ConvSizes& s, ThreadPool& threads, float* scratch) {
  Convolution c = forward_convolution(s);
  c.from = stored(o.x), c.weight = floats(o.weight), c.to = stored(o.y), c.bias = floats(o.bias);
  run(c, threads, scratch);
}

std::int64_t backward_data_scratch(const ConvSizes& s, int threads) {
  return scratch_floats(backward_convolution(s), threads);
}

void backward_data(const Conv2dBackwardData& o, const ConvSizes& s, ThreadPool& threads,
                   float* scratch) {
  Convolution c = backward_convolution(s);
  c.from = stored(o.dy), c.weight = floats(o.weight), c.to = stored(o.dx);
  c.add = o.write == Write::kAdd;
  run(c, threads, scratch);
}

}  // namespace

const Conv2dTable winograd_table{forward_scratch, forward, backward_data_scratch, backward_data};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
