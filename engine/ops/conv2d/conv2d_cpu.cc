// Convolution forward and backward to its input: matrix products whose rows are the pixels of the
// result.
//
// In NHWC the kernel_w * in values that one kernel row reads for one pixel are contiguous, and so
// are the weights for them (HWIO). So a pixel's row of the product is kernel_h runs of kernel_w *
// in floats, one map row apart, read in place through a table of offsets, without im2col. A tile is
// 6 (AVX-512: 8) pixels x 2 vectors of output channels; the pixels may be on any rows of any
// images. Backward to the input is the same product over dy. For stride s, the pixels of dx form s
// * s classes of equal (pixel + padding) mod s. For each class the taps that reach it form a
// separate kernel, rotated and transposed. First layers (1 or 3 input channels) with one vector of
// output channels have special tiles in row_tiles.h. While tiles compute, the inputs of the next
// ones are prefetched into L2. Bound by the FMA rate. In bf16 (gemm_tiles.h) a step has two
// adjacent channels; if their number is odd, the last step has the last channel and 0. Maps stored
// in bf16 already have this form, and are read in place if they have no border.
#include "engine/ops/conv2d/conv2d_cpu.h"

#include "engine/ops/common/cpu_operands.h"
#include "engine/ops/conv2d/conv2d_maps.h"
#include "engine/ops/conv2d/row_tiles.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

// One product: for each place p of each image, result[c_row[p]][column] = sum over steps k of
// maps[a_row[p] + step[k]] * packed[k][column]. a_row and c_row cover a whole group of images.
struct Product {
  std::int64_t places;  // per image
  std::int64_t steps, columns;
  std::int64_t *a_row, *c_row, *step;
  float* packed;
  bool neighbors = false;  // all steps of a place are contiguous, in maps read in place; in AMX
                           // also all places
  RowTiles rows{};         // if they have a loop, run_rows() runs it
};

// Prefetches the part of a panel that belongs to tile `i` of `tiles`; all tiles together prefetch
// the whole panel.
ENGINE_INLINE void prefetch_share(const float* panel, std::int64_t floats, std::int64_t i,
                                  std::int64_t tiles) {
  const std::int64_t share = (floats + 16 * tiles - 1) / (16 * tiles) * 16;
  for (std::int64_t f = i * share; f < smaller(floats, (i + 1) * share); f += 16)
    __builtin_prefetch(panel + f, 0, 2);
}

// A block of at most kPlaceBlock places of the maps at `maps`.
struct Block {
  const float* maps;
  std::int64_t first, count;
};

// Loops over chunks of steps that keep one panel in L1, then panels, then tiles. `next` is the data
// that the following block reads first.
void run_block(const Product& p, const Block& block, const Ahead& next, Stored* result,
               const float* bias, bool add, float* between) {
  const EvenCut tiles(block.count, kMaxPointerRows), chunks(p.steps, kStepsInCache);
  const std::int64_t panels = panel_count(p.columns);
  for (std::int64_t chunk = 0; chunk < chunks.pieces; ++chunk) {
    const std::int64_t first_step = chunks.start(chunk);
    PointerRows tile{block.maps, nullptr, p.step + first_step, chunks.size(chunk), nullptr};
    if (p.neighbors) tile.a += first_step, tile.table = nullptr;
    Ahead ahead;
    if (chunk + 1 == chunks.pieces) {
      ahead = next;
    } else if (p.neighbors) {
      ahead = {block.maps + chunks.start(chunk + 1), p.a_row + block.first, block.count,
               chunks.size(chunk + 1)};
    }
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      const std::int64_t column = panel * kPanel, width = panel_width(p.columns, panel);
      const float* b = p.packed + column * p.steps + first_step * width;
      for (std::int64_t i = 0; i < tiles.pieces; ++i) {
        TileOutputOf<Stored> out{result + column, smaller(p.columns - column, kPanel), add,
                                 bias == nullptr ? nullptr : bias + column, false};
        out.set_chunk(chunk, chunks.pieces,
                      between + (panel * block.count + tiles.start(i)) * kPanel);
        tile.row = p.a_row + block.first + tiles.start(i);
        tile.c_row = p.c_row + block.first + tiles.start(i);
        if (panel + 1 < panels)
          prefetch_share(b + p.steps * kPanel, tile.steps * width, i, tiles.pieces);
        ahead.fetch(panel * tiles.pieces + i, panels * tiles.pieces);
        const auto run = p.neighbors ? pointer_tile_for<false, Stored>(tiles.size(i), out.columns)
                                     : pointer_tile_for<true, Stored>(tiles.size(i), out.columns);
        run(tile, b, out);
      }
    }
  }
}

// Per thread: the sums of a block between chunks, needed if the result is stored in bf16.
std::int64_t between_floats(std::int64_t steps, std::int64_t columns) {
  if (!kHalves || steps <= kStepsInCache) return 0;
  return kPlaceBlock * panel_count(columns) * kPanel;
}

// Computes all places of `images` images. The last tile of a row may overlap the one before and
// recompute some places.
void run_rows(const Product& p, const float* maps, std::int64_t images, Stored* result,
              const float* bias) {
  const RowTiles& tiles = p.rows;
  const RowProduct product{p.packed, p.step, p.steps, p.columns};
  for (std::int64_t row = 0; row < images * p.places; row += tiles.in_row) {
    for (std::int64_t i = 0; i < tiles.in_row; i += tiles.width) {
      const std::int64_t first = row + smaller(i, tiles.in_row - tiles.width);
      tiles.run(product, maps + p.a_row[first],
                {result + p.c_row[first], p.columns, false, bias, false});
    }
  }
}

// Products over the same images, in groups of `group`.
struct Work {
  const Product* products;
  std::int64_t count;
  Maps maps;
  std::int64_t group;
  Stored* result;
  std::int64_t result_elements;  // per image
  const float* bias;
  bool add;
  std::int64_t between;  // floats per thread, after its maps

  std::int64_t buffer_floats() const { return maps.buffer_floats(group) + between; }
};

// Returns the data that is read after block `b` of `images` images starting at `image`; the
// thread's range ends at `last`.
Ahead behind_block(const Work& w, const Product& p, const EvenCut& blocks, std::int64_t b,
                   std::int64_t image, std::int64_t images, std::int64_t last) {
  const std::int64_t next = image + images, count = smaller(w.group, last - next);
  if (!w.maps.in_place()) return w.maps.unpadded(next, count, b, blocks.pieces);
  if (!p.neighbors) return {};
  const std::int64_t channels = EvenCut(p.steps, kStepsInCache).size(0);
  const float* maps = w.maps.padded(image, 0, nullptr);
  if (b + 1 < blocks.pieces)
    return {maps, p.a_row + blocks.start(b + 1), blocks.size(b + 1), channels};
  return {maps + images * w.maps.padded_floats(), p.a_row,
          EvenCut(count * p.places, kPlaceBlock).size(0), channels};
}

// Computes images [first, last).
void run_images(const Work& w, std::int64_t first, std::int64_t last, float* buffer) {
  if (first == last) return;
  const TileScope scope;
  w.maps.clear(buffer, w.group);
  for (std::int64_t image = first; image < last; image += w.group) {
    const std::int64_t images = smaller(w.group, last - image);
    const float* padded = w.maps.padded(image, images, buffer);
    for (std::int64_t i = 0; i < w.count; ++i) {
      const Product& product = w.products[i];
      if (product.places == 0 || (w.add && product.steps == 0)) continue;
      if (product.rows.run != nullptr) {
        run_rows(product, padded, images, w.result + image * w.result_elements, w.bias);
        continue;
      }
      const EvenCut blocks(images * product.places, kPlaceBlock);
      for (std::int64_t b = 0; b < blocks.pieces; ++b) {
        run_block(product, {padded, blocks.start(b), blocks.size(b)},
                  behind_block(w, product, blocks, b, image, images, last),
                  w.result + image * w.result_elements, w.bias, w.add,
                  buffer + w.maps.buffer_floats(w.group));
      }
    }
  }
}

// Takes `floats` floats from the scratch.
float* take(float*& scratch, std::int64_t floats) {
  float* taken = scratch;
  scratch += floats;
  return taken;
}

std::int64_t packed_floats(std::int64_t steps, std::int64_t columns) {
  return panel_count(columns) * kPanel * steps;
}
std::int64_t table_floats(std::int64_t entries) {
  return round_up_16(2 * entries);
}  // int64 elements, in floats

std::int64_t* take_table(float*& scratch, std::int64_t entries) {
  return reinterpret_cast<std::int64_t*>(take(scratch, table_floats(entries)));
}

// Without a table of steps, AMX tiles read rows that are a constant distance apart.
bool may_have_no_table(const std::int64_t* row, std::int64_t count) {
#if defined(ENGINE_AMX_TILES)
  for (std::int64_t i = 2; i < count; ++i)
    if (row[i] - row[i - 1] != row[1] - row[0]) return false;
#else
  static_cast<void>(row), static_cast<void>(count);
#endif
  return true;
}

// Fills the steps: `rows` runs of `run` adjacent elements, `pitch` apart.
void fill_steps(std::int64_t rows, std::int64_t run, std::int64_t pitch, std::int64_t* step) {
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t t = 0; t < run; ++t) *step++ = row * pitch + t;
}

// ---- forward

Maps forward_maps(const ConvSizes& s, const Stored* x) {
  return {x, s.in_h, s.in_w, steps_of(s.in), s.in, s.padding, s.padding, s.padding, s.padding};
}

std::int64_t forward_scratch(const ConvSizes& s, int threads) {
  const std::int64_t places = s.out_h * s.out_w, group = group_images(places, s.n);
  const std::int64_t steps = s.kernel_h * s.kernel_w * steps_of(s.in);
  return packed_floats(steps, s.out) + table_floats(steps) + 2 * table_floats(group * places) +
         threads * (forward_maps(s, nullptr).buffer_floats(group) + between_floats(steps, s.out));
}

void forward(const Conv2dForward& o, const ConvSizes& s, ThreadPool& threads, float* scratch) {
  const Maps maps = forward_maps(s, stored(o.x));
  const float* weight = floats(o.weight);
  const std::int64_t places = s.out_h * s.out_w, group = group_images(places, s.n);
  const std::int64_t taps = s.kernel_h * s.kernel_w;
  Product product{places, taps * maps.channels, s.out, nullptr, nullptr, nullptr, nullptr};
  product.packed = take(scratch, packed_floats(product.steps, s.out));
  product.step = take_table(scratch, product.steps);
  product.a_row = take_table(scratch, group * places);
  product.c_row = take_table(scratch, group * places);
  fill_steps(s.kernel_h, s.kernel_w * maps.channels, maps.pitch(), product.step);
  product.rows = row_tiles_for(s, maps.channels);
  for (std::int64_t image = 0, i = 0; image < group; ++image) {
    for (std::int64_t oy = 0; oy < s.out_h; ++oy) {
      for (std::int64_t ox = 0; ox < s.out_w; ++ox, ++i) {
        product.a_row[i] =
            image * maps.padded_floats() + (oy * maps.pitch() + ox * maps.channels) * s.stride;
        product.c_row[i] = i * s.out;
      }
    }
  }
  product.neighbors =
      maps.in_place() && taps == 1 && may_have_no_table(product.a_row, group * places);
  threads.run(panel_count(s.out), [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t panel = first; panel < last; ++panel) {
      const std::int64_t column = panel * kPanel;
      float* to = product.packed + column * product.steps;
      for (std::int64_t tap = 0; tap < taps; ++tap)
        pack_rows(weight + tap * s.in * s.out + column, s.out, s.in,
                  smaller(s.out - column, kPanel),
                  to + tap * maps.channels * panel_width(s.out, panel));
    }
  });
  const Work work{&product,       1,           maps,
                  group,          stored(o.y), places * s.out,
                  floats(o.bias), false,       between_floats(product.steps, s.out)};
  threads.run(s.n, [&](std::int64_t first, std::int64_t last, int thread) {
    run_images(work, first, last, scratch + thread * work.buffer_floats());
  });
}

// ---- backward to the input

constexpr std::int64_t kMaxClasses = 16;  // stride 4; for larger strides conv2d.cc uses the
                                          // reference

// Along one axis, the pixels of dx with (pixel + padding) mod stride == phase: first, first +
// stride, ..., `count` of them. The taps phase, phase + stride, ..., `taps` of them, reach these
// pixels. In reverse order, the taps of the first pixel read dy at `origin`, origin + 1, ...; those
// of the next pixel read one position further.
struct Phase {
  std::int64_t phase, first, count, taps, origin;
};

Phase phase_of(std::int64_t phase, std::int64_t in, std::int64_t kernel, std::int64_t stride,
               std::int64_t padding) {
  Phase p{};
  p.phase = phase;
  p.first = ((phase - padding) % stride + stride) % stride;
  p.count = p.first < in ? (in - 1 - p.first) / stride + 1 : 0;
  p.taps = phase < kernel ? (kernel - 1 - phase) / stride + 1 : 0;
  p.origin = (p.first + padding - phase) / stride - (p.taps - 1);
  return p;
}

Maps backward_maps(const ConvSizes& s, const Stored* dy) {
  Maps maps{dy, s.out_h, s.out_w, steps_of(s.out), s.out, 0, 0, 0, 0};
  for (std::int64_t phase = 0; phase < s.stride; ++phase) {
    const Phase y = phase_of(phase, s.in_h, s.kernel_h, s.stride, s.padding);
    const Phase x = phase_of(phase, s.in_w, s.kernel_w, s.stride, s.padding);
    if (y.taps > 0 && y.count > 0) {
      maps.top = larger(maps.top, -y.origin);
      maps.bottom = larger(maps.bottom, y.origin + y.count - 1 + y.taps - s.out_h);
    }
    if (x.taps > 0 && x.count > 0) {
      maps.left = larger(maps.left, -x.origin);
      maps.right = larger(maps.right, x.origin + x.count - 1 + x.taps - s.out_w);
    }
  }
  return maps;
}

// The number of images per group, from the places of the largest class.
std::int64_t backward_group(const ConvSizes& s) {
  return group_images(((s.in_h + s.stride - 1) / s.stride) * ((s.in_w + s.stride - 1) / s.stride),
                      s.n);
}

std::int64_t backward_data_scratch(const ConvSizes& s, int threads) {
  const std::int64_t group = backward_group(s), classes = s.stride * s.stride;
  const std::int64_t steps = s.kernel_h * s.kernel_w * steps_of(s.out);
  return packed_floats(steps, s.in) + table_floats(steps) +
         2 * table_floats(group * s.in_h * s.in_w) + 3 * 16 * classes +
         threads * (backward_maps(s, nullptr).buffer_floats(group) + between_floats(steps, s.in));
}

void fill_tables(const ConvSizes& s, const Maps& maps, std::int64_t group, const Phase& y,
                 const Phase& x, Product& product) {
  for (std::int64_t image = 0, i = 0; image < group; ++image) {
    for (std::int64_t v = 0; v < y.count; ++v) {
      for (std::int64_t u = 0; u < x.count; ++u, ++i) {
        product.a_row[i] = image * maps.padded_floats() + (y.origin + v + maps.top) * maps.pitch() +
                           (x.origin + u + maps.left) * maps.channels;
        product.c_row[i] =
            ((image * s.in_h + y.first + v * s.stride) * s.in_w + x.first + u * s.stride) * s.in;
      }
    }
  }
}

// Packs one panel of a class's weights: [reversed taps][out] x input channels.
void pack_class(const ConvSizes& s, const Phase& y, const Phase& x, const float* weight,
                std::int64_t panel, const Product& product) {
  const std::int64_t column = panel * kPanel, width = panel_width(s.in, panel);
  float* to = product.packed + column * product.steps;
  for (std::int64_t j = y.taps - 1; j >= 0; --j) {
    for (std::int64_t i = x.taps - 1; i >= 0; --i, to += steps_of(s.out) * width) {
      const std::int64_t tap = (y.phase + j * s.stride) * s.kernel_w + x.phase + i * s.stride;
      pack_columns(weight + (tap * s.in + column) * s.out, s.out, s.out,
                   smaller(s.in - column, kPanel), width, to);
    }
  }
}

void backward_data(const Conv2dBackwardData& o, const ConvSizes& s, ThreadPool& threads,
                   float* scratch) {
  const Maps maps = backward_maps(s, stored(o.dy));
  const float* weight = floats(o.weight);
  const std::int64_t group = backward_group(s), classes = s.stride * s.stride;
  Product products[kMaxClasses];
  for (std::int64_t c = 0; c < classes; ++c) {
    const Phase y = phase_of(c / s.stride, s.in_h, s.kernel_h, s.stride, s.padding);
    const Phase x = phase_of(c % s.stride, s.in_w, s.kernel_w, s.stride, s.padding);
    Product& product = products[c];
    product = {y.count * x.count,
               y.taps * x.taps * maps.channels,
               s.in,
               nullptr,
               nullptr,
               nullptr,
               nullptr};
    product.packed = take(scratch, packed_floats(product.steps, s.in));
    product.step = take_table(scratch, product.steps);
    product.a_row = take_table(scratch, group * product.places);
    product.c_row = take_table(scratch, group * product.places);
    fill_steps(y.taps, x.taps * maps.channels, maps.pitch(), product.step);
    fill_tables(s, maps, group, y, x, product);
    product.neighbors = maps.in_place() && y.taps * x.taps == 1 &&
                        may_have_no_table(product.a_row, group * product.places);
  }
  threads.run(panel_count(s.in), [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t panel = first; panel < last; ++panel) {
      for (std::int64_t c = 0; c < classes; ++c) {
        pack_class(s, phase_of(c / s.stride, s.in_h, s.kernel_h, s.stride, s.padding),
                   phase_of(c % s.stride, s.in_w, s.kernel_w, s.stride, s.padding), weight, panel,
                   products[c]);
      }
    }
  });
  const std::int64_t max_steps = s.kernel_h * s.kernel_w * maps.channels;
  const Work work{products,
                  classes,
                  maps,
                  group,
                  stored(o.dx),
                  s.in_h * s.in_w * s.in,
                  nullptr,
                  o.write == Write::kAdd,
                  between_floats(max_steps, s.in)};
  threads.run(s.n, [&](std::int64_t first, std::int64_t last, int thread) {
    run_images(work, first, last, scratch + thread * work.buffer_floats());
  });
}

}  // namespace

const Conv2dTable conv2d_table{forward_scratch, forward, backward_data_scratch, backward_data};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
