// Products of plain_product.h, a matrix for each group, with operands that are read in place. Along
// k: forward over taps and input channels, for the gradient of the input over taps and output
// channels, for that of the weights over output pixels.
#include "engine/ops/float64/conv2d_f64_cuda.h"

#include "engine/ops/device/packs.h"
#include "engine/ops/float64/plain_product.h"

namespace engine::ops::cuda {
namespace {

// `index` as a number of rows of `width`, and the rest.
struct Divided {
  std::int64_t row, rest;
};
__device__ __forceinline__ Divided divided(std::int64_t index, std::int64_t width) {
  const std::int64_t row = quotient(index, width);
  return {row, index - row * width};
}

// Returns the number that tap and input channel `place` of a window read for an output pixel, or
// zero in the padding.
__device__ __forceinline__ double read_window(const double* x, const ConvF64& g, std::int64_t pixel,
                                              std::int64_t place, std::int64_t group) {
  const Divided tap = divided(place, g.ins), at = divided(tap.row, g.kernel_w),
                line = divided(pixel, g.out_w), image = divided(line.row, g.out_h);
  const std::int64_t y = image.rest * g.stride - g.padding + at.row,
                     column = line.rest * g.stride - g.padding + at.rest;
  if (y < 0 || y >= g.in_h || column < 0 || column >= g.in_w) return 0;
  return x[((image.row * g.in_h + y) * g.in_w + column) * (g.ins * g.groups) + group * g.ins +
           tap.rest];
}

// Lines are output pixels, and k is the place in the window; transposed, the other way around.
template <bool kTransposed>
struct Windows {
  static constexpr bool kByDepth = !kTransposed;
  const double* x;
  ConvF64 g;
  __device__ __forceinline__ double at(std::int64_t i, std::int64_t k, std::int64_t group) const {
    return kTransposed ? read_window(x, g, k, i, group) : read_window(x, g, i, k, group);
  }
};

// Lines are input pixels, k is a tap and an output channel: dy where the tap reads the pixel.
struct Readers {
  static constexpr bool kByDepth = true;
  const double* dy;
  ConvF64 g;
  __device__ __forceinline__ double at(std::int64_t i, std::int64_t k, std::int64_t group) const {
    const Divided tap = divided(k, g.outs), at = divided(tap.row, g.kernel_w),
                  line = divided(i, g.in_w), image = divided(line.row, g.in_h);
    const std::int64_t y = image.rest + g.padding - at.row,
                       column = line.rest + g.padding - at.rest;
    if (y < 0 || column < 0 || y % g.stride != 0 || column % g.stride != 0) return 0;
    const std::int64_t row = y / g.stride, out_column = column / g.stride;
    if (row >= g.out_h || out_column >= g.out_w) return 0;
    return dy[((image.row * g.out_h + row) * g.out_w + out_column) * (g.outs * g.groups) +
              group * g.outs + tap.rest];
  }
};

// Lines are input channels, k as for Readers.
struct TransposedWeights {
  static constexpr bool kByDepth = true;
  const double* weight;
  ConvF64 g;
  __device__ __forceinline__ double at(std::int64_t i, std::int64_t k, std::int64_t group) const {
    const Divided tap = divided(k, g.outs);
    return weight[(tap.row * g.ins + i) * (g.outs * g.groups) + group * g.outs + tap.rest];
  }
};

// A matrix [rows, out channels] by its columns; a group has `outs` of them.
plain::Strided<false> channels_of(const double* data, const ConvF64& g) {
  return {data, 1, g.outs * g.groups, g.outs};
}

}  // namespace

void conv2d_forward_f64(KernelContext& context, const ConvF64& g, const double* x,
                        const double* weight, const double* bias, double* y) {
  plain::launch_product(
      context, "conv2d_forward", Windows<false>{x, g}, channels_of(weight, g),
      {g.n * g.out_h * g.out_w, g.outs, g.taps() * g.ins, g.groups},
      {.data = y, .row = g.outs * g.groups, .matrix = g.outs, .bias = bias, .bias_matrix = g.outs});
}

void conv2d_backward_data_f64(KernelContext& context, const ConvF64& g, const double* dy,
                              const double* weight, double* dx, Write write) {
  plain::launch_product(
      context, "conv2d_backward_data", Readers{dy, g}, TransposedWeights{weight, g},
      {g.n * g.in_h * g.in_w, g.ins, g.taps() * g.outs, g.groups},
      {.data = dx, .row = g.ins * g.groups, .matrix = g.ins, .add = write == Write::kAdd});
}

void conv2d_backward_weights_f64(KernelContext& context, const ConvF64& g, const double* x,
                                 const double* dy, double* dweight, Write write) {
  plain::launch_product(
      context, "conv2d_backward_weights", Windows<true>{x, g}, channels_of(dy, g),
      {g.taps() * g.ins, g.outs, g.n * g.out_h * g.out_w, g.groups},
      {.data = dweight, .row = g.outs * g.groups, .matrix = g.outs, .add = write == Write::kAdd});
}

}  // namespace engine::ops::cuda
