// Convolution in float64: what gradient checks and comparisons with PyTorch's float64 run on,
// several times faster than the plain loops, and simple rather than fastest.
//
// All three are Eigen's matrix products of one tap of the kernel at a time. The pixels that a block
// of pixels reads through the tap are gathered side by side, zeros where it reaches none, and
// multiplied by the tap's weights or, for the gradient of these, by dy. Blocks are cut by the shape
// alone, so that no result depends on the number of threads.
#include "engine/ops/conv2d/conv2d_f64_cpu.h"

#include "engine/ops/common/eigen_maps.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kBlockPixels = 128;  // of a result, gathered at once
constexpr std::int64_t kSumPixels = 512;    // gathered at once for the weights
constexpr std::int64_t kSumChannels = 64;   // of x: so many at most are one thread's piece

std::int64_t pieces(std::int64_t count, std::int64_t largest) {
  return (count + largest - 1) / largest;
}

// Pixels [first, first + count) of a map [n, height, width].
struct Block {
  std::int64_t height, width, first, count;
};

// Copies the `channels` doubles that source(image, y, x) points to for each pixel of the block,
// zeros for nullptr, to to[pixel][..]. Says whether any pixel has a source.
template <class Source>
bool gather(const Block& block, std::int64_t channels, double* to, Source source) {
  const std::size_t bytes = static_cast<std::size_t>(channels) * sizeof(double);
  bool any = false;
  for (std::int64_t i = 0; i < block.count; ++i, to += channels) {
    const std::int64_t pixel = block.first + i, row = pixel / block.width;
    const double* from = source(row / block.height, row % block.height, pixel % block.width);
    any = any || from != nullptr;
    if (from != nullptr) {
      __builtin_memcpy(to, from, bytes);
    } else {
      __builtin_memset(to, 0, bytes);
    }
  }
  return any;
}

std::int64_t thread_doubles(const ConvSizes& s) {
  const std::int64_t doubles =
      larger(kBlockPixels * larger(s.in, s.out), kSumPixels * kSumChannels);
  return (doubles + 7) / 8 * 8;
}
std::int64_t scratch_doubles(const ConvSizes& s, int threads) {
  return threads * thread_doubles(s);
}

// The pixel of x that output pixel (image, y, x) reads through a tap.
struct Reads {
  const ConvSizes* s;
  const double* x;
  std::int64_t ky, kx, channel;
  const double* operator()(std::int64_t image, std::int64_t oy, std::int64_t ox) const {
    const std::int64_t y = oy * s->stride + ky - s->padding, at = ox * s->stride + kx - s->padding;
    const bool inside = y >= 0 && y < s->in_h && at >= 0 && at < s->in_w;
    return inside ? x + ((image * s->in_h + y) * s->in_w + at) * s->in + channel : nullptr;
  }
};

// The output place whose tap k lies on the padded input place `at`; -1: none.
std::int64_t reached(std::int64_t at, std::int64_t k, std::int64_t stride, std::int64_t places) {
  const std::int64_t offset = at - k;
  return offset >= 0 && offset % stride == 0 && offset / stride < places ? offset / stride : -1;
}

// The pixel of dy that input pixel (image, y, x) has been read for through a tap.
struct ReadBy {
  const ConvSizes* s;
  const double* dy;
  std::int64_t ky, kx;
  const double* operator()(std::int64_t image, std::int64_t y, std::int64_t x) const {
    const std::int64_t oy = reached(y + s->padding, ky, s->stride, s->out_h);
    const std::int64_t ox = reached(x + s->padding, kx, s->stride, s->out_w);
    return oy >= 0 && ox >= 0 ? dy + ((image * s->out_h + oy) * s->out_w + ox) * s->out : nullptr;
  }
};

void forward(const ConvSizes& s, const double* x, const double* weight, const double* bias,
             double* y, ThreadPool& threads, double* scratch) {
  const std::int64_t pixels = s.n * s.out_h * s.out_w, taps = s.kernel_h * s.kernel_w;
  threads.run(pieces(pixels, kBlockPixels), [&](std::int64_t begin, std::int64_t end, int thread) {
    double* gathered = scratch + thread * thread_doubles(s);
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t first = b * kBlockPixels;
      const Block block{s.out_h, s.out_w, first, smaller(kBlockPixels, pixels - first)};
      Rows result = rows_at(y + first * s.out, block.count, s.out, s.out);
      if (bias != nullptr) {
        result = rows_at(bias, 1, s.out, s.out).replicate(block.count, 1);
      } else {
        result.setZero();
      }
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        const Reads source{&s, x, tap / s.kernel_w, tap % s.kernel_w, 0};
        if (!gather(block, s.in, gathered, source)) continue;
        result.noalias() += rows_at(static_cast<const double*>(gathered), block.count, s.in, s.in) *
                            rows_at(weight + tap * s.in * s.out, s.in, s.out, s.out);
      }
    }
  });
}

void backward_data(const ConvSizes& s, const double* dy, const double* weight, double* dx, bool add,
                   ThreadPool& threads, double* scratch) {
  const std::int64_t pixels = s.n * s.in_h * s.in_w, taps = s.kernel_h * s.kernel_w;
  threads.run(pieces(pixels, kBlockPixels), [&](std::int64_t begin, std::int64_t end, int thread) {
    double* gathered = scratch + thread * thread_doubles(s);
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t first = b * kBlockPixels;
      const Block block{s.in_h, s.in_w, first, smaller(kBlockPixels, pixels - first)};
      Rows result = rows_at(dx + first * s.in, block.count, s.in, s.in);
      if (!add) result.setZero();
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        const ReadBy source{&s, dy, tap / s.kernel_w, tap % s.kernel_w};
        if (!gather(block, s.out, gathered, source)) continue;
        result.noalias() +=
            rows_at(static_cast<const double*>(gathered), block.count, s.out, s.out) *
            rows_at(weight + tap * s.in * s.out, s.in, s.out, s.out).transpose();
      }
    }
  });
}

// Piece by piece of dweight: some input channels of one tap, and all output channels.
void backward_weights(const ConvSizes& s, const double* x, const double* dy, double* dweight,
                      bool add, ThreadPool& threads, double* scratch) {
  const std::int64_t pixels = s.n * s.out_h * s.out_w, cuts = pieces(s.in, kSumChannels);
  const std::int64_t count = s.kernel_h * s.kernel_w * cuts;
  threads.run(count, [&](std::int64_t begin, std::int64_t end, int thread) {
    double* gathered = scratch + thread * thread_doubles(s);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t tap = i / cuts, channel = i % cuts * kSumChannels,
                         channels = smaller(kSumChannels, s.in - channel);
      Rows result = rows_at(dweight + (tap * s.in + channel) * s.out, channels, s.out, s.out);
      if (!add) result.setZero();
      for (std::int64_t first = 0; first < pixels; first += kSumPixels) {
        const Block block{s.out_h, s.out_w, first, smaller(kSumPixels, pixels - first)};
        const Reads source{&s, x, tap / s.kernel_w, tap % s.kernel_w, channel};
        if (!gather(block, channels, gathered, source)) continue;
        result.noalias() +=
            rows_at(static_cast<const double*>(gathered), block.count, channels, channels)
                .transpose() *
            rows_at(dy + first * s.out, block.count, s.out, s.out);
      }
    }
  });
}

}  // namespace

const Conv2dF64Table conv2d_f64_table{scratch_doubles, forward, backward_data, backward_weights};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
