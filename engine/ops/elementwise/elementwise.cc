// Checks and dispatches the elementwise kernels.
#include "engine/ops/elementwise/elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "engine/core/cuda.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/elementwise/elementwise_cpu.h"
#include "engine/ops/elementwise/elementwise_cuda.h"
#include "engine/ops/elementwise/elementwise_reference.h"

namespace engine::ops {
namespace {

const ElementwiseTable& fast_for(const TensorView& operand) {
  return ENGINE_TABLE_FOR(operand.dtype, elementwise_table);
}

// Checks that two flat operands have the same dtype and number of elements.
std::int64_t check_pair(std::string_view kernel, const KernelContext& context,
                        const TensorView& from, const TensorView& to) {
  check_stored(kernel, "the input", from);
  check_dtype(kernel, "the output", to, from.dtype);
  check_count(kernel, "the output", to, from.count());
  check_context(kernel, context);
  return from.count();
}

// Returns the number of elements of a sample.
std::int64_t check_dropout(std::string_view kernel, const KernelContext& context,
                           const Dropout& o) {
  check_pair(kernel, context, o.from, o.to);
  if (!(o.rate >= 0 && o.rate <= 1)) {
    throw ModelError(std::string(kernel) + ": rate " + std::to_string(o.rate) +
                     ", expected a number in [0, 1]");
  }
  const Shape& shape = o.from.shape;
  const std::int64_t n = shape.rank() > 0 ? shape[0] : 0;
  if (static_cast<std::int64_t>(o.sample_ids.size()) != n) {
    throw ShapeError(std::string(kernel) + ": " + std::to_string(o.sample_ids.size()) +
                     " sample ids for a batch of " + std::to_string(n) + " (shape " +
                     shape.to_string() + ")");
  }
  return n > 0 ? o.from.count() / n : 0;
}

struct Image {
  std::int64_t n, pixels, channels;
};

Image check_flatten(std::string_view kernel, const KernelContext& context, const TensorView& image,
                    const TensorView& flat) {
  check_pair(kernel, context, image, flat);
  const Shape& s = image.shape;
  if (s.rank() != 4)
    throw ShapeError(std::string(kernel) + ": the image has the shape " + s.to_string() +
                     ", expected [n, h, w, c]");
  check_shape(kernel, "the flat side", flat, {s[0], s[1] * s[2] * s[3]});
  return {s[0], s[1] * s[2], s[3]};
}

}  // namespace

void relu_forward(KernelContext& context, TensorView x, TensorView y) {
  const std::int64_t count = check_pair("relu_forward", context, x, y);
  dispatch(
      context, x.dtype, [&] { reference::relu_forward(x.as<double>(), count, y.as<double>()); },
      [&] { fast_for(x).relu_forward(x, count, y, *context.threads); },
      [&] { cuda::relu_forward(context, x, count, y); });
}

void relu_backward(KernelContext& context, TensorView y, TensorView dy, TensorView dx,
                   Write write) {
  const std::int64_t count = check_pair("relu_backward", context, dy, dx);
  check_dtype("relu_backward", "y", y, dy.dtype);
  check_count("relu_backward", "y", y, count);
  dispatch(
      context, dy.dtype,
      [&] {
        reference::relu_backward(y.as<double>(), dy.as<double>(), count, dx.as<double>(), write);
      },
      [&] { fast_for(dy).relu_backward(y, dy, count, dx, write == Write::kAdd, *context.threads); },
      [&] { cuda::relu_backward(context, y, dy, count, dx, write); });
}

void add_forward(KernelContext& context, TensorView a, TensorView b, bool relu, TensorView y) {
  const std::int64_t count = check_pair("add_forward", context, a, y);
  check_like("add_forward", "b", b, a);
  dispatch(
      context, a.dtype,
      [&] { reference::add_forward(a.as<double>(), b.as<double>(), relu, count, y.as<double>()); },
      [&] { fast_for(a).add_forward(a, b, relu, count, y, *context.threads); },
      [&] { cuda::add_forward(context, a, b, relu, count, y); });
}

void copy_or_add(KernelContext& context, TensorView from, TensorView to, Write write) {
  const std::int64_t count = check_pair("copy_or_add", context, from, to);
  dispatch(
      context, from.dtype,
      [&] { reference::copy_or_add(from.as<double>(), count, to.as<double>(), write); },
      [&] { fast_for(from).copy_or_add(from, count, to, write == Write::kAdd, *context.threads); },
      [&] { cuda::copy_or_add(context, from, count, to, write); });
}

void dropout(KernelContext& context, const Dropout& o) {
  const std::int64_t count = check_dropout("dropout", context, o);
  const std::int64_t n = static_cast<std::int64_t>(o.sample_ids.size());
  // The condition uniform_float(word) >= rate in integers: both sides times 2^24, which is exact.
  const std::uint32_t threshold = static_cast<std::uint32_t>(std::ceil(o.rate * 0x1p24));
  const double factor = o.rate < 1 ? 1 / (1 - o.rate) : 0;
  dispatch(
      context, o.from.dtype, [&] { reference::dropout<double>(o, count); },
      [&] {
        fast_for(o.from).dropout({n, count, o.key, o.epoch, threshold, static_cast<float>(factor)},
                                 o.sample_ids.data(), o.from, o.to, o.write == Write::kAdd,
                                 *context.threads);
      },
      [&] {
        cuda::dropout(context, o, {o.key, threshold, factor, n, count});
      });
}

void nhwc_to_channel_first(KernelContext& context, TensorView x, TensorView y, Write write) {
  const Image image = check_flatten("nhwc_to_channel_first", context, x, y);
  dispatch(
      context, x.dtype,
      [&] {
        reference::transpose_samples(x.as<double>(), image.n, image.pixels, image.channels,
                                     y.as<double>(), write);
      },
      [&] {
        fast_for(x).transpose(x, image.n, image.pixels, image.channels, y, write == Write::kAdd,
                              *context.threads);
      },
      [&] {
        cuda::transpose_samples(context, x, image.n, image.pixels, image.channels, y, write);
      });
}

void channel_first_to_nhwc(KernelContext& context, TensorView x, TensorView y, Write write) {
  const Image image = check_flatten("channel_first_to_nhwc", context, y, x);
  dispatch(
      context, x.dtype,
      [&] {
        reference::transpose_samples(x.as<double>(), image.n, image.channels, image.pixels,
                                     y.as<double>(), write);
      },
      [&] {
        fast_for(x).transpose(x, image.n, image.channels, image.pixels, y, write == Write::kAdd,
                              *context.threads);
      },
      [&] {
        cuda::transpose_samples(context, x, image.n, image.channels, image.pixels, y, write);
      });
}

void cast(KernelContext& context, TensorView from, TensorView to) {
  if (to.dtype != DType::kF32 || from.dtype == DType::kF64)
    check_dtype("cast", "the input", from, DType::kF32);
  check_stored("cast", "the input", from);
  check_stored("cast", "the output", to);
  check_count("cast", "the output", to, from.count());
  check_context("cast", context);
  dispatch(
      context, to.dtype,
      [&] {
        const float* source = from.as<float>();
        double* target = to.as<double>();
        context.threads->run(from.count(), [=](std::int64_t first, std::int64_t last, int) {
          for (std::int64_t i = first; i < last; ++i) target[i] = source[i];
        });
      },
      [&] {
        if (from.dtype == DType::kF32)
          fast_for(to).narrow(from, from.count(), to, *context.threads);
        else
          fast_for(from).widen(from, from.count(), to, *context.threads);
      },
      [&] { cuda::cast(context, from, from.count(), to); });
}

void zero(KernelContext& context, TensorView view) {
  check_dtype("zero", "the output", view, view.dtype);
  check_context("zero", context);
  if (view.count() == 0) return;
  dispatch_device(
      context.device.kind, [&] { std::memset(view.data, 0, view.bytes()); },
      [&] { engine::cuda::set_bytes_async(view.data, 0, view.bytes(), context.stream); });
}

void fill(KernelContext& context, double value, TensorView view) {
  check_floating("fill", "the output", view);
  check_context("fill", context);
  dispatch(
      context, view.dtype, [&] { std::ranges::fill(view.span<double>(), value); },
      [&] { std::ranges::fill(view.span<float>(), static_cast<float>(value)); },
      [&] { cuda::fill(context, value, view); });
}

void increment(KernelContext& context, TensorView counter) {
  check_dtype("increment", "the counter", counter, DType::kI64);
  check_count("increment", "the counter", counter, 1);
  check_context("increment", context);
  dispatch_device(
      context.device.kind, [&] { ++*counter.as<std::int64_t>(); },
      [&] { cuda::increment(context, counter); });
}

}  // namespace engine::ops
