// Convolution in float64, for gradient checks and comparisons with PyTorch's float64: several times
// faster than the plain loops, and simple rather than optimal.
//
// All three functions are Eigen's matrix products of one tap of the kernel at a time. The pixels
// that a block of pixels reads through the tap are gathered contiguously, with zeros for pixels
// that the tap does not reach, and multiplied by the tap's weights or, for the gradient of these,
// by dy. The blocks depend only on the shape, so no result depends on the number of threads.
#include "engine/ops/conv2d/conv2d_f64_cpu.h"

#include "engine/ops/common/cpu_operands.h"
#include "engine/ops/common/eigen_maps.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kBlockPixels = 128;  // pixels of a result, gathered at once
constexpr std::int64_t kSumPixels = 512;    // pixels gathered at once for the gradient of the
                                            // weights
constexpr std::int64_t kSumChannels = 64;   // maximum number of channels of x in one thread's piece

std::int64_t pieces(std::int64_t count, std::int64_t largest) {
  return (count + largest - 1) / largest;
}

// Pixels [first, first + count) of a map [n, height, width].
struct Block {
  std::int64_t height, width, first, count;
};

// For each pixel of the block, copies the `channels` doubles that source(image, y, x) points to, or
// zeros for nullptr, to to[pixel][..]. Returns true if any pixel has a source.
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
  const std::int64_t doubles = larger(kBlockPixels * (s.in + s.out), kSumPixels * kSumChannels);
  return (doubles + 7) / 8 * 8;
}
std::int64_t scratch_doubles(const ConvSizes& s, int threads) {
  return threads * thread_doubles(s);
}

// Finds the pixel of x that output pixel (image, y, x) reads through a tap.
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

// Along one axis, the pixels of dx with (pixel + padding) mod stride == phase: first,
// first + stride, ..., `count` of them. Only the taps phase, phase + stride, ... reach these
// pixels.
struct Phase {
  std::int64_t phase, first, count;
};
Phase phase_from(std::int64_t first, std::int64_t in, const ConvSizes& s) {
  return {(first + s.padding) % s.stride, first, (in - 1 - first) / s.stride + 1};
}

// Finds the pixel of dy that reads pixel (i, j) of two phases of an image through a tap.
struct ReadBy {
  const ConvSizes* s;
  const double* dy;
  Phase y, x;
  std::int64_t ky, kx;
  const double* operator()(std::int64_t image, std::int64_t i, std::int64_t j) const {
    const std::int64_t oy = i + (y.first + s->padding - ky) / s->stride;
    const std::int64_t ox = j + (x.first + s->padding - kx) / s->stride;
    const bool inside = oy >= 0 && oy < s->out_h && ox >= 0 && ox < s->out_w;
    return inside ? dy + ((image * s->out_h + oy) * s->out_w + ox) * s->out : nullptr;
  }
};

void forward(const Conv2dForward& o, const ConvSizes& s, ThreadPool& threads, double* scratch) {
  const double *x = doubles(o.x), *weight = doubles(o.weight), *bias = doubles(o.bias);
  double* y = doubles(o.y);
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

// Writes to `sums`, for a block of the pixels of two phases, the sum over the taps that reach them.
void sum_taps(const ConvSizes& s, const Block& block, ReadBy source, const double* weight,
              double* gathered, double* sums) {
  Rows result = rows_at(sums, block.count, s.in, s.in);
  result.setZero();
  for (source.ky = source.y.phase; source.ky < s.kernel_h; source.ky += s.stride) {
    for (source.kx = source.x.phase; source.kx < s.kernel_w; source.kx += s.stride) {
      if (!gather(block, s.out, gathered, source)) continue;
      const double* tap = weight + (source.ky * s.kernel_w + source.kx) * s.in * s.out;
      result.noalias() += rows_at(static_cast<const double*>(gathered), block.count, s.out, s.out) *
                          rows_at(tap, s.in, s.out, s.out).transpose();
    }
  }
}

// Works phase by phase, since each tap reaches only one.
void backward_data(const Conv2dBackwardData& o, const ConvSizes& s, ThreadPool& threads,
                   double* scratch) {
  const double *dy = doubles(o.dy), *weight = doubles(o.weight);
  double* dx = doubles(o.dx);
  const bool add = o.write == Write::kAdd;
  // A stride may be much larger than the image, which then has no pixels in most phases.
  const std::int64_t phases_y = smaller(s.stride, s.in_h), phases_x = smaller(s.stride, s.in_w);
  for (std::int64_t c = 0; c < phases_y * phases_x; ++c) {
    const Phase y = phase_from(c / phases_x, s.in_h, s), x = phase_from(c % phases_x, s.in_w, s);
    const std::int64_t pixels = s.n * y.count * x.count;
    const auto body = [&](std::int64_t begin, std::int64_t end, int thread) {
      double* gathered = scratch + thread * thread_doubles(s);
      double* sums = gathered + kBlockPixels * s.out;
      for (std::int64_t b = begin; b < end; ++b) {
        const std::int64_t first = b * kBlockPixels;
        const Block block{y.count, x.count, first, smaller(kBlockPixels, pixels - first)};
        sum_taps(s, block, {&s, dy, y, x, 0, 0}, weight, gathered, sums);
        for (std::int64_t i = 0; i < block.count; ++i) {
          const std::int64_t pixel = first + i, row = pixel / x.count;
          const std::int64_t at_y = y.first + row % y.count * s.stride,
                             at_x = x.first + pixel % x.count * s.stride;
          double* to = dx + ((row / y.count * s.in_h + at_y) * s.in_w + at_x) * s.in;
          const double* from = sums + i * s.in;
          for (std::int64_t k = 0; k < s.in; ++k) to[k] = add ? to[k] + from[k] : from[k];
        }
      }
    };
    threads.run(pieces(pixels, kBlockPixels), body);
  }
}

// Computes dweight piece by piece: some input channels of one tap, and all output channels.
void backward_weights(const Conv2dBackwardWeights& o, const ConvSizes& s, ThreadPool& threads,
                      double* scratch) {
  const double *x = doubles(o.x), *dy = doubles(o.dy);
  double* dweight = doubles(o.dweight);
  const bool add = o.write == Write::kAdd;
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
