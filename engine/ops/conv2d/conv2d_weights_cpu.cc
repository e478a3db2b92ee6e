// Convolution backward to its weights: dweight [kernel_h * kernel_w * in, out] is a sum of outer
// products over the pixels.
//
// A tile of dweight is 6 (AVX-512: 14) adjacent elements of one kernel row's run of kernel_w * in
// values, x 2 vectors of output channels, summed over a block of pixels and then added to dweight.
// For each pixel the adjacent elements are contiguous in the padded image (at the offset in a
// table), and dy is packed in panels, a group of them at a time. While tiles compute, the inputs of
// the next block of pixels are prefetched. With many panels it pays to pack the adjacent elements
// as well, a group of tiles at a time: they are one pixel apart, so for many channels only few of
// them fit into L1 together. Threads: for a small dweight, each thread processes some images and
// sums into its own copy of dweight; the copies are added in thread order at the end. For a large
// dweight, each thread computes some panels of it over all images, and nothing has to be added.
// Bound by the FMA rate. In bf16 (gemm_tiles.h) a step has the same pixel of two adjacent images,
// and "image" below means two images.
#include "engine/ops/common/cpu_operands.h"
#include "engine/ops/conv2d/conv2d_cpu.h"
#include "engine/ops/conv2d/conv2d_maps.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kLargestPrivate =
    256 * 1024;  // largest dweight in floats that is worth a copy per thread

constexpr std::int64_t kPanelsWorthPacking = 8;  // number of panels from which packing the adjacent
                                                 // elements pays
constexpr std::int64_t kGroupTiles = 16;         // packed together: 16 x 6 x 256 floats are 96 KB
constexpr std::int64_t kGroupPanels = 8;         // panels of dy that are packed together: 256 KB
                                                 // stay in L2
constexpr std::int64_t kTileFloats =
    kPlaceBlock * kMaxStridedRows + 16;  // floats of one packed tile, with room for writes past its
                                         // end

struct Plan {
  Maps maps;
  std::int64_t images;
  std::int64_t places, group, block;  // places per image; images and places processed together
  std::int64_t weight_floats,
      private_floats;  // size of dweight; size of dweight and dbias of one thread, rounded up
  std::int64_t packed_floats,
      buffer_floats;  // per thread: packed dy; that, the padded group and packed elements
  bool by_images, pack_neighbours;
};

Plan make_plan(const ConvSizes& s, const Stored* x, int threads) {
  Plan p{};
  p.maps = {x, s.in_h, s.in_w, s.in, s.in, s.padding, s.padding, s.padding, s.padding};
  p.images = steps_of(s.n);
  p.places = s.out_h * s.out_w;
  p.group = group_images(p.places, p.images);
  p.block = smaller(kPlaceBlock, p.group * p.places);
  p.weight_floats = s.kernel_h * s.kernel_w * s.in * s.out;
  p.private_floats = round_up_16(p.weight_floats) + round_up_16(s.out);
  const std::int64_t panels = panel_count(s.out);
  p.by_images = threads == 1 || p.weight_floats <= kLargestPrivate || panels < threads;
  p.pack_neighbours = panels >= kPanelsWorthPacking;
  p.packed_floats = p.block * smaller(panels, kGroupPanels) * kPanel;
  p.buffer_floats = p.maps.buffer_floats(p.group) + p.packed_floats +
                    (p.pack_neighbours ? kGroupTiles * kTileFloats : 0);
  return p;
}

// The memory to which one thread writes its sums. `add`: add to the existing values.
struct Target {
  float *dweight, *dbias;
  bool add;
};

// A block of places: its padded images; dy; and the offsets of the places in the images.
struct Block {
  const float* padded;
  const Stored* dy;
  const std::int64_t* table;
  std::int64_t places;
  float* buffer;
  std::int64_t first;  // the first place, counted over all images; dy is that of image 0
};

#if defined(ENGINE_BF16_PAIRS)
// Packs rounded panels of dy for the block's places of two images each, and sums the unrounded
// values.
const float* pack_dy(const ConvSizes& s, const Block& block, std::int64_t first, std::int64_t last,
                     const Target& target) {
  const std::int64_t places = s.out_h * s.out_w, whole = places * s.out;
  for (std::int64_t panel = first; panel < last; ++panel) {
    const std::int64_t column = panel * kPanel, columns = smaller(s.out - column, kPanel),
                       width = panel_width(s.out, panel);
    float* packed = block.buffer + (panel - first) * kPanel * block.places;
    Floats sums[4] = {zero(), zero(), zero(), zero()};  // for both vectors of both images
    std::int64_t image = 2 * (block.first / places), place = block.first % places;
    for (std::int64_t i = 0; i < block.places; ++i, packed += width) {
      const Stored* row = block.dy + image * whole + place * s.out + column;
      for (std::int64_t v = 0; v * kWidth < width; ++v, row += kWidth) {
        const std::int64_t left = smaller(columns - v * kWidth, kWidth);
        const Stored* second = image + 1 < s.n ? row + whole : nullptr;
        store(packed + v * kWidth, paired_rows(row, second, left));
        if (target.dbias == nullptr) continue;
        sums[2 * v] += load_partial(row, left);
        if (second != nullptr) sums[2 * v + 1] += load_partial(second, left);
      }
      if (++place == places) place = 0, image += 2;
    }
    for (std::int64_t v = 0; target.dbias != nullptr && v * kWidth < columns; ++v) {
      const std::int64_t left = smaller(columns - v * kWidth, kWidth);
      float* to = target.dbias + column + v * kWidth;
      const Floats sum = sums[2 * v] + sums[2 * v + 1];
      store_partial(to, target.add ? load_partial(to, left) + sum : sum, left);
    }
  }
  return block.buffer;
}
#else
// Adds the sums of a panel over the places of a block to dbias.
void sum_panel(const float* panel, std::int64_t width, std::int64_t places, std::int64_t columns,
               float* dbias, bool add) {
  for (std::int64_t i = 0; i < columns; i += kWidth) {
    const std::int64_t valid = smaller(columns - i, kWidth);
    Floats sum[4] = {zero(), zero(), zero(),
                     zero()};  // four, because each addition waits for the one before
    std::int64_t k = 0;
    for (; k + 4 <= places; k += 4)
      for (int j = 0; j < 4; ++j) sum[j] += load(panel + (k + j) * width + i);
    for (; k < places; ++k) sum[0] += load(panel + k * width + i);
    Floats total = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    if (add) total += load_partial(dbias + i, valid);
    store_partial(dbias + i, total, valid);
  }
}

// Packs panels [first, last) of dy and adds their sums to dbias. A single whole panel is used in
// place.
const float* pack_dy(const ConvSizes& s, const Block& block, std::int64_t first, std::int64_t last,
                     const Target& target) {
  const bool in_place = s.out == panel_width(s.out, 0);
  const float* dy = block.dy + block.first * s.out;
  for (std::int64_t panel = first; panel < last; ++panel) {
    const std::int64_t column = panel * kPanel, columns = smaller(s.out - column, kPanel);
    float* packed = block.buffer + (panel - first) * kPanel * block.places;
    if (!in_place) pack_rows(dy + column, s.out, block.places, columns, packed);
    if (target.dbias != nullptr) {
      sum_panel(in_place ? dy : packed, panel_width(s.out, panel), block.places, columns,
                target.dbias + column, target.add);
    }
  }
  return in_place ? dy : block.buffer;
}
#endif

// Packs tiles [first, last) of kernel row `row`: each tile's adjacent elements at every place.
void pack_tiles(const Plan& p, const Block& block, const EvenCut& tiles, std::int64_t row,
                std::int64_t first, std::int64_t last, float* packed) {
  for (std::int64_t place = 0; place < block.places; ++place) {
    const float* from = block.padded + block.table[place] + row * p.maps.pitch();
    for (std::int64_t t = first; t < last; ++t) {
      copy_few(packed + (t - first) * kTileFloats + place * tiles.size(t), from + tiles.start(t),
               tiles.size(t));
    }
  }
}

// The data that the next block reads. `maps` may have rows.
struct NextBlock {
  Ahead maps, dy;

  // Lets a tile prefetch part `i` of `pieces` during its steps: requesting all lines at once would
  // stall it.
  ENGINE_INLINE void spread(std::int64_t i, std::int64_t pieces, AdjacentRows& tile) const {
    if (maps.row != nullptr) maps.fetch(i, pieces);
    const std::int64_t of_maps = maps.row != nullptr ? 0 : maps.floats, all = dy.floats + of_maps;
    const std::int64_t for_dy = all == 0 ? 0 : pieces * dy.floats / all;
    const bool dys = i < for_dy;
    const std::int64_t part = dys ? i : i - for_dy, parts = dys ? for_dy : pieces - for_dy,
                       floats = dys ? dy.floats : of_maps;
    if (floats == 0) return;
    const std::int64_t start = floats * part / parts, end = floats * (part + 1) / parts;
    tile.ahead = (dys ? dy.data : maps.data) + start;
    tile.ahead_stride = (end - start + tile.steps - 1) / tile.steps;
  }
};

void run_block(const ConvSizes& s, const Plan& p, const Block& block, const NextBlock& next,
               std::int64_t first, std::int64_t last, const Target& target) {
  const std::int64_t run = s.kernel_w * s.in;
  const EvenCut tiles(run, kMaxStridedRows), groups(tiles.pieces, kGroupTiles),
      panel_groups(last - first, kGroupPanels);
  float* neighbors = block.buffer + p.packed_floats;
  const std::int64_t all_tiles = s.kernel_h * tiles.pieces * (last - first);
  std::int64_t done = 0;
  for (std::int64_t panels = 0; panels < panel_groups.pieces; ++panels) {
    const std::int64_t first_panel = first + panel_groups.start(panels),
                       last_panel = first + panel_groups.start(panels + 1);
    const float* dy = pack_dy(s, block, first_panel, last_panel, target);
    for (std::int64_t row = 0; row < s.kernel_h; ++row) {
      for (std::int64_t group = 0; group < groups.pieces; ++group) {
        const std::int64_t first_tile = groups.start(group), last_tile = groups.start(group + 1);
        if (p.pack_neighbours) pack_tiles(p, block, tiles, row, first_tile, last_tile, neighbors);
        for (std::int64_t panel = first_panel; panel < last_panel; ++panel) {
          const std::int64_t column = panel * kPanel;
          TileOutput out{nullptr, smaller(s.out - column, kPanel), target.add, nullptr, false};
          for (std::int64_t t = first_tile; t < last_tile; ++t) {
            const std::int64_t start = tiles.start(t), width = tiles.size(t);
            out.c = target.dweight + (row * run + start) * s.out + column;
            AdjacentRows tile{neighbors + (t - first_tile) * kTileFloats, nullptr, width,
                              block.places, s.out};
            if (!p.pack_neighbours)
              tile = {block.padded + row * p.maps.pitch() + start, block.table, 0, block.places,
                      s.out};
            const AdjacentTile run_tile = p.pack_neighbours
                                              ? adjacent_tile_for<false>(width, out.columns)
                                              : adjacent_tile_for<true>(width, out.columns);
            next.spread(done++, all_tiles, tile);
            run_tile(tile, dy + (panel - first_panel) * kPanel * block.places, out);
          }
        }
      }
    }
  }
}

// Computes all taps of a small kernel over one input channel, kSide runs of kSide elements, x one
// vector of output channels. A tile of one run would have too few independent sums to hide latency.
template <int kSide>
void kernel_tile(const Maps& maps, const Block& block, const float* dy, const TileOutput& out,
                 std::int64_t c_stride) {
  Floats sum[kSide * kSide][1];
  ENGINE_UNROLL
  for (int i = 0; i < kSide * kSide; ++i) start_row(sum, i, out.c + i * c_stride);
  const std::int64_t pitch = maps.pitch();
  for (std::int64_t k = 0; k < block.places; ++k, dy += kWidth) {
    const float* run = block.padded + block.table[k];
    const Floats column = load(dy);
    ENGINE_UNROLL
    for (int row = 0; row < kSide; ++row, run += pitch) {
      ENGINE_UNROLL
      for (int i = 0; i < kSide; ++i) {
        Floats& to = sum[row * kSide + i][0];
        to = add_products(to, broadcast(run[i]), column);
      }
    }
  }
  finish_tile(sum, out, [=](int i) { return out.c + i * c_stride; });
}

// Returns true if the sums of kernel_tile() fit into registers: 25 of AVX-512's 32.
bool fits_kernel_tile(const ConvSizes& s) {
  return kVectorBytes == 64 && s.in == 1 && s.out <= kWidth && s.kernel_h == s.kernel_w &&
         (s.kernel_h == 3 || s.kernel_h == 5);
}

void run_small_block(const ConvSizes& s, const Plan& p, const Block& block, const Target& target) {
  const float* dy = pack_dy(s, block, 0, 1, target);
  const TileOutput out{target.dweight, s.out, target.add, nullptr, false};
  (s.kernel_h == 3 ? kernel_tile<3> : kernel_tile<5>)(p.maps, block, dy, out, s.out);
}

// One thread's part of the work.
struct Share {
  std::int64_t first_image, last_image, first_panel, last_panel;
  float* buffer;
  Target target;
};

// The images of a share that are processed together, and the blocks of their places.
struct Group {
  std::int64_t first, count, last_of_share;
  EvenCut blocks;
};

// Returns the data that is read after block `b` of a group: by the next block, or by the next
// group.
NextBlock next_block([[maybe_unused]] const ConvSizes& s, [[maybe_unused]] const Plan& p,
                     [[maybe_unused]] const Stored* dy, [[maybe_unused]] const std::int64_t* table,
                     [[maybe_unused]] const Group& g, [[maybe_unused]] std::int64_t b) {
  NextBlock next;
#if !defined(ENGINE_BF16_PAIRS)
  const bool inside = b + 1 < g.blocks.pieces;
  const std::int64_t first = inside ? g.first : g.first + g.count,
                     count = smaller(p.group, g.last_of_share - first);
  const std::int64_t place = inside ? g.blocks.start(b + 1) : 0,
                     places =
                         inside ? g.blocks.size(b + 1) : EvenCut(count * p.places, p.block).size(0);
  next.dy = {dy + (first * p.places + place) * s.out, nullptr, 1, places * s.out};
  if (p.maps.in_place()) {
    next.maps = {p.maps.data + first * p.maps.padded_floats(), table + place, places, s.in};
    if (s.stride == 1) next.maps = {next.maps.data + table[place], nullptr, 1, places * s.in};
  } else {
    const std::int64_t behind = g.first + g.count;
    next.maps =
        p.maps.unpadded(behind, smaller(p.group, g.last_of_share - behind), b, g.blocks.pieces);
  }
#endif
  return next;
}

void run_images(const ConvSizes& s, const Plan& p, const Stored* dy, const std::int64_t* table,
                const Share& share) {
  if (share.first_image == share.last_image || share.first_panel == share.last_panel) return;
  const TileScope scope;
  float* buffer = share.buffer;
  Target target = share.target;
  p.maps.clear(buffer, p.group);
  for (std::int64_t image = share.first_image; image < share.last_image; image += p.group) {
    const std::int64_t images = smaller(p.group, share.last_image - image);
    const float* padded = p.maps.padded_images(image, images, s.n, buffer);
    const Group group{image, images, share.last_image, EvenCut(images * p.places, p.block)};
    for (std::int64_t b = 0; b < group.blocks.pieces; ++b) {
      const Block block{padded,
                        dy,
                        table + group.blocks.start(b),
                        group.blocks.size(b),
                        buffer + p.maps.buffer_floats(p.group),
                        image * p.places + group.blocks.start(b)};
      if (fits_kernel_tile(s)) {
        run_small_block(s, p, block, target);
      } else {
        run_block(s, p, block, next_block(s, p, dy, table, group, b), share.first_panel,
                  share.last_panel, target);
      }
      target.add = true;
    }
  }
}

std::int64_t table_floats(const Plan& p) { return round_up_16(2 * p.group * p.places); }

std::int64_t scratch_floats(const ConvSizes& s, int threads) {
  const Plan p = make_plan(s, nullptr, threads);
  return table_floats(p) + threads * p.buffer_floats +
         (p.by_images ? (threads - 1) * p.private_floats : 0);
}

// The sums of all threads except the first one that had images, whose sums are in the result.
struct Privates {
  const float* sums;
  std::int64_t floats;  // per thread
  std::int64_t images;
  int threads;
};

// Adds to elements [first, last) of `to` the elements from `offset` on of the private sums, in
// thread order.
void add_private(const Privates& p, std::int64_t offset, float* to, std::int64_t first,
                 std::int64_t last) {
  bool seen = false;
  for (int t = 0; t < p.threads; ++t) {
    if (p.images * t / p.threads == p.images * (t + 1) / p.threads) continue;
    if (!seen) {  // the first one summed into the result itself
      seen = true;
      continue;
    }
    const float* from = p.sums + (t - 1) * p.floats + offset;
    for (std::int64_t i = first; i < last; i += kWidth) {
      const std::int64_t valid = smaller(last - i, kWidth);
      store_partial(to + i, load_partial(to + i, valid) + load_partial(from + i, valid), valid);
    }
  }
}

void run(const Conv2dBackwardWeights& o, const ConvSizes& s, ThreadPool& pool, float* scratch) {
  const Stored* dy = stored(o.dy);
  float *dweight = floats(o.dweight), *dbias = floats(o.dbias);
  const bool add = o.write == Write::kAdd;
  const int threads = pool.threads();
  const Plan p = make_plan(s, stored(o.x), threads);
  const std::int64_t panels = panel_count(s.out);
  const Target result{dweight, dbias, add};
  if (s.n == 0) {
    if (!add)
      __builtin_memset(dweight, 0, static_cast<unsigned long>(p.weight_floats) * sizeof(float));
    if (!add && dbias != nullptr)
      __builtin_memset(dbias, 0, static_cast<unsigned long>(s.out) * sizeof(float));
    return;
  }
  auto* table = reinterpret_cast<std::int64_t*>(scratch);
  for (std::int64_t image = 0, i = 0; image < p.group; ++image)
    for (std::int64_t oy = 0; oy < s.out_h; ++oy)
      for (std::int64_t ox = 0; ox < s.out_w; ++ox, ++i)
        table[i] =
            image * p.maps.padded_floats() + oy * s.stride * p.maps.pitch() + ox * s.stride * s.in;
  float* buffers = scratch + table_floats(p);
  if (!p.by_images) {
    pool.run(panels, [&](std::int64_t first, std::int64_t last, int thread) {
      run_images(s, p, dy, table,
                 {0, p.images, first, last, buffers + thread * p.buffer_floats, result});
    });
    return;
  }
  float* privates = buffers + threads * p.buffer_floats;
  const std::int64_t bias_offset = round_up_16(p.weight_floats);
  pool.run(p.images, [&](std::int64_t first, std::int64_t last, int thread) {
    float* own = privates + (thread - 1) * p.private_floats;
    const Target target =
        first == 0 ? result : Target{own, dbias == nullptr ? nullptr : own + bias_offset, false};
    run_images(s, p, dy, table,
               {first, last, 0, panels, buffers + thread * p.buffer_floats, target});
  });
  if (threads == 1 || p.images == 1) return;
  const Privates all{privates, p.private_floats, p.images, threads};
  pool.run(p.weight_floats, [&](std::int64_t first, std::int64_t last, int) {
    add_private(all, 0, dweight, first, last);
  });
  if (dbias != nullptr) add_private(all, bias_offset, dbias, 0, s.out);
}

}  // namespace

const Conv2dWeightsTable conv2d_weights_table{scratch_floats, run};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
