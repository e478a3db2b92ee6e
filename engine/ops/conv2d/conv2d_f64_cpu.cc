// Convolution in float64: what gradient checks and comparisons with PyTorch's float64 run on,
// several times faster than the plain loops, and simple rather than fastest.
//
// All three are products of tiles of 6 rows x 2 vectors of columns that stay in registers. Forward
// and backward to the input: rows are pixels of the result, and each tap of the kernel adds the
// product of a run of channels, read in place, with the tap's weights; a pixel that a tap does not
// reach reads zeros. Backward to the weights: rows are input channels of one tap, columns output
// channels, and the sum runs over pixels. One panel of columns at a time is packed side by side.
#include "engine/ops/conv2d/conv2d_f64_cpu.h"

#include "engine/ops/common/simd.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

constexpr int kLanes = kVectorBytes / 8, kColumns = 2 * kLanes, kRows = 6;
constexpr std::int64_t kGroupPlaces = 1024;  // of dy packed at once for the weights

std::int64_t round_up_8(std::int64_t count) { return (count + 7) / 8 * 8; }
ENGINE_INLINE Doubles load_doubles(const double* p) {
  return *reinterpret_cast<const UnalignedDoubles*>(p);
}
ENGINE_INLINE void store_doubles(double* p, Doubles v) {
  *reinterpret_cast<UnalignedDoubles*>(p) = v;
}

struct Tile {
  Doubles sum[kRows][2];

  // sum[r] += a[r][k * a_step] * b[k], over k = 0 .. steps - 1; b has kColumns doubles a step.
  ENGINE_INLINE void multiply(const double* const (&a)[kRows], std::int64_t a_step, const double* b,
                              std::int64_t steps) {
    Doubles s[kRows][2];
    for (int r = 0; r < kRows; ++r) s[r][0] = sum[r][0], s[r][1] = sum[r][1];
    for (std::int64_t k = 0; k < steps; ++k, b += kColumns) {
      const Doubles left = load_doubles(b), right = load_doubles(b + kLanes);
      for (int r = 0; r < kRows; ++r) {
        const Doubles value = a[r][k * a_step] - Doubles{};
        s[r][0] += value * left;
        s[r][1] += value * right;
      }
    }
    for (int r = 0; r < kRows; ++r) sum[r][0] = s[r][0], sum[r][1] = s[r][1];
  }

  // The first `columns` of row r to `to`.
  void put(int r, double* to, std::int64_t columns, bool add) const {
    double row[kColumns];
    store_doubles(row, sum[r][0]);
    store_doubles(row + kLanes, sum[r][1]);
    for (std::int64_t c = 0; c < columns; ++c) to[c] = add ? to[c] + row[c] : row[c];
  }
};

// packed[k][c] = from[k * row_step + c * column_step] for c < columns, 0 behind.
void pack(const double* from, std::int64_t rows, std::int64_t row_step, std::int64_t columns,
          std::int64_t column_step, double* packed) {
  for (std::int64_t k = 0; k < rows; ++k)
    for (std::int64_t c = 0; c < kColumns; ++c)
      *packed++ = c < columns ? from[k * row_step + c * column_step] : 0;
}

// A pixel of the result: where it lies.
struct Place {
  std::int64_t image, y, x;
};

// Pixels [first, last) of the result [n, height, width, channels]: for each tap, `depth` channels
// of the pixel that source(place, ky, kx) points to (nullptr: none) times the tap's weights, which
// pack_tap(tap, column, columns, packed) packs.
template <class Source, class PackTap>
void multiply_pixels(const ConvSizes& s, std::int64_t height, std::int64_t width,
                     std::int64_t channels, std::int64_t depth, std::int64_t first,
                     std::int64_t last, const double* bias, double* result, bool add,
                     const double* zeros, double* packed, Source source, PackTap pack_tap) {
  const std::int64_t taps = s.kernel_h * s.kernel_w;
  for (std::int64_t column = 0; column < channels; column += kColumns) {
    const std::int64_t columns = smaller(kColumns, channels - column);
    for (std::int64_t tap = 0; tap < taps; ++tap)
      pack_tap(tap, column, columns, packed + tap * depth * kColumns);
    for (std::int64_t pixel = first; pixel < last; pixel += kRows) {
      const std::int64_t rows = smaller(kRows, last - pixel);
      Place places[kRows];
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t p = pixel + r;
        places[r] = {p / (height * width), p / width % height, p % width};
      }
      Tile tile{};
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        const double* a[kRows];
        bool any = false;
        for (std::int64_t r = 0; r < kRows; ++r) {
          const double* from =
              r < rows ? source(places[r], tap / s.kernel_w, tap % s.kernel_w) : nullptr;
          any = any || from != nullptr;
          a[r] = from != nullptr ? from : zeros;
        }
        if (any) tile.multiply(a, 1, packed + tap * depth * kColumns, depth);
      }
      for (int r = 0; r < rows; ++r) {
        double* to = result + (pixel + r) * channels + column;
        tile.put(r, to, columns, add);
        if (bias == nullptr) continue;
        for (std::int64_t c = 0; c < columns; ++c) to[c] += bias[column + c];
      }
    }
  }
}

// Scratch: zeros, then a piece for each thread: a panel of weights, or of dy.
std::int64_t zero_doubles(const ConvSizes& s) { return round_up_8(larger(s.in, s.out)); }
std::int64_t group_images(const ConvSizes& s) {
  return larger(1, smaller(s.n, kGroupPlaces / (s.out_h * s.out_w)));
}
std::int64_t thread_doubles(const ConvSizes& s) {
  const std::int64_t weights = s.kernel_h * s.kernel_w * larger(s.in, s.out);
  return kColumns * larger(weights, group_images(s) * s.out_h * s.out_w);
}
std::int64_t scratch_doubles(const ConvSizes& s, int threads) {
  return zero_doubles(s) + threads * thread_doubles(s);
}

// Clears the zeros and returns what lies behind them.
double* begin_scratch(const ConvSizes& s, double* scratch) {
  for (std::int64_t i = 0; i < zero_doubles(s); ++i) scratch[i] = 0;
  return scratch + zero_doubles(s);
}

void forward(const ConvSizes& s, const double* x, const double* weight, const double* bias,
             double* y, ThreadPool& threads, double* scratch) {
  double* panels = begin_scratch(s, scratch);
  const std::int64_t panel = thread_doubles(s);
  threads.run(s.n * s.out_h * s.out_w, [=](std::int64_t first, std::int64_t last, int thread) {
    const auto source = [=](const Place& p, std::int64_t ky, std::int64_t kx) -> const double* {
      const std::int64_t iy = p.y * s.stride + ky - s.padding, ix = p.x * s.stride + kx - s.padding;
      const bool inside = iy >= 0 && iy < s.in_h && ix >= 0 && ix < s.in_w;
      return inside ? x + ((p.image * s.in_h + iy) * s.in_w + ix) * s.in : nullptr;
    };
    const auto pack_tap = [=](std::int64_t tap, std::int64_t column, std::int64_t columns,
                              double* packed) {
      pack(weight + tap * s.in * s.out + column, s.in, s.out, columns, 1, packed);
    };
    multiply_pixels(s, s.out_h, s.out_w, s.out, s.in, first, last, bias, y, false, scratch,
                    panels + thread * panel, source, pack_tap);
  });
}

// The output place whose tap k lies on the padded input place `at`; -1: none.
ENGINE_INLINE std::int64_t reached(std::int64_t at, std::int64_t k, std::int64_t stride,
                                   std::int64_t places) {
  const std::int64_t offset = at - k;
  return offset >= 0 && offset % stride == 0 && offset / stride < places ? offset / stride : -1;
}

void backward_data(const ConvSizes& s, const double* dy, const double* weight, double* dx, bool add,
                   ThreadPool& threads, double* scratch) {
  double* panels = begin_scratch(s, scratch);
  const std::int64_t panel = thread_doubles(s);
  threads.run(s.n * s.in_h * s.in_w, [=](std::int64_t first, std::int64_t last, int thread) {
    const auto source = [=](const Place& p, std::int64_t ky, std::int64_t kx) -> const double* {
      const std::int64_t oy = reached(p.y + s.padding, ky, s.stride, s.out_h);
      const std::int64_t ox = reached(p.x + s.padding, kx, s.stride, s.out_w);
      return oy >= 0 && ox >= 0 ? dy + ((p.image * s.out_h + oy) * s.out_w + ox) * s.out : nullptr;
    };
    const auto pack_tap = [=](std::int64_t tap, std::int64_t column, std::int64_t columns,
                              double* packed) {
      pack(weight + (tap * s.in + column) * s.out, s.out, 1, columns, s.out, packed);
    };
    multiply_pixels(s, s.in_h, s.in_w, s.in, s.out, first, last, nullptr, dx, add, scratch,
                    panels + thread * panel, source, pack_tap);
  });
}

// Output places [first, last) along one axis whose tap k lies inside the input.
struct Range {
  std::int64_t first, last;
};
ENGINE_INLINE Range inside_range(std::int64_t k, std::int64_t padding, std::int64_t stride,
                                 std::int64_t extent, std::int64_t places) {
  const std::int64_t first = larger(0, (padding - k + stride - 1) / stride),
                     room = extent - 1 + padding - k;
  return {first, room < 0 ? 0 : smaller(places, room / stride + 1)};
}

// Tile `i` of the rows of dweight seen as [kernel_h * kernel_w, in, out], over images [first, last)
// whose dy is packed.
void multiply_weights(const ConvSizes& s, std::int64_t i, std::int64_t first, std::int64_t last,
                      const double* x, const double* packed, std::int64_t column, double* dweight,
                      bool add) {
  const std::int64_t tiles = (s.in + kRows - 1) / kRows, tap = i / tiles,
                     channel = i % tiles * kRows;
  const std::int64_t ky = tap / s.kernel_w, kx = tap % s.kernel_w;
  const Range rows = inside_range(ky, s.padding, s.stride, s.in_h, s.out_h);
  const Range columns = inside_range(kx, s.padding, s.stride, s.in_w, s.out_w);
  Tile tile{};
  for (std::int64_t image = first; image < last; ++image) {
    for (std::int64_t oy = rows.first; oy < rows.last; ++oy) {
      if (columns.first >= columns.last) break;
      const std::int64_t iy = oy * s.stride + ky - s.padding,
                         ix = columns.first * s.stride + kx - s.padding;
      const double* pixel = x + ((image * s.in_h + iy) * s.in_w + ix) * s.in;
      const double* a[kRows];
      for (std::int64_t r = 0; r < kRows; ++r) a[r] = pixel + smaller(channel + r, s.in - 1);
      const std::int64_t place = ((image - first) * s.out_h + oy) * s.out_w + columns.first;
      tile.multiply(a, s.stride * s.in, packed + place * kColumns, columns.last - columns.first);
    }
  }
  const std::int64_t width = smaller(kColumns, s.out - column);
  for (int r = 0; r < smaller(kRows, s.in - channel); ++r)
    tile.put(r, dweight + (tap * s.in + channel + r) * s.out + column, width, add);
}

void backward_weights(const ConvSizes& s, const double* x, const double* dy, double* dweight,
                      bool add, ThreadPool& threads, double* scratch) {
  double* panels = begin_scratch(s, scratch);
  const std::int64_t panel = thread_doubles(s),
                     tiles = s.kernel_h * s.kernel_w * ((s.in + kRows - 1) / kRows);
  const std::int64_t places = s.out_h * s.out_w, group = group_images(s);
  threads.run(tiles, [=](std::int64_t first, std::int64_t last, int thread) {
    double* packed = panels + thread * panel;
    std::int64_t image = 0;
    do {  // also once for no image, to clear
      const std::int64_t images = smaller(group, s.n - image);
      for (std::int64_t column = 0; column < s.out; column += kColumns) {
        pack(dy + image * places * s.out + column, images * places, s.out,
             smaller(kColumns, s.out - column), 1, packed);
        for (std::int64_t i = first; i < last; ++i)
          multiply_weights(s, i, image, image + images, x, packed, column, dweight,
                           add || image > 0);
      }
      image += group;
    } while (image < s.n);
  });
}

}  // namespace

const Conv2dF64Table conv2d_f64_table{scratch_doubles, forward, backward_data, backward_weights};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
