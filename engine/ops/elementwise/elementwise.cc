// Checks and dispatch of the elementwise kernels.
#include "engine/ops/elementwise/elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "engine/core/cuda.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/elementwise/elementwise_cpu.h"
#include "engine/ops/elementwise/elementwise_cuda.h"
#include "engine/ops/elementwise/elementwise_reference.h"

namespace engine::ops {
namespace {

const ElementwiseTable& fast() { return isa_table_of_elementwise_table(); }

// Dtype and number of elements of two flat operands agree.
std::int64_t check_pair(std::string_view kernel, const KernelContext& context,
                        const TensorView& from, const TensorView& to) {
  check_floating(kernel, "the input", from);
  check_dtype(kernel, "the output", to, from.dtype);
  check_count(kernel, "the output", to, from.count());
  check_context(kernel, context);
  return from.count();
}

// Elements of a sample.
std::int64_t check_dropout(std::string_view kernel, const KernelContext& context,
                           const TensorView& from, double rate,
                           std::span<const std::int64_t> sample_ids, const TensorView& to) {
  check_pair(kernel, context, from, to);
  if (!(rate >= 0 && rate <= 1)) {
    throw ModelError(std::string(kernel) + ": rate " + std::to_string(rate) +
                     ", expected a number in [0, 1]");
  }
  const std::int64_t n = from.shape.rank() > 0 ? from.shape[0] : 0;
  if (static_cast<std::int64_t>(sample_ids.size()) != n) {
    throw ShapeError(std::string(kernel) + ": " + std::to_string(sample_ids.size()) +
                     " sample ids for a batch of " + std::to_string(n) + " (shape " +
                     from.shape.to_string() + ")");
  }
  return n > 0 ? from.count() / n : 0;
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
  if constexpr (engine::cuda::kBuilt) {
    if (on_cuda(context)) return cuda::relu_forward(context, x, count, y);
  }
  if (x.dtype == DType::kF32) {
    fast().relu_forward(x.as<float>(), count, y.as<float>(), *context.threads);
  } else {
    reference::relu_forward(x.as<double>(), count, y.as<double>());
  }
}

void relu_backward(KernelContext& context, TensorView y, TensorView dy, TensorView dx,
                   Write write) {
  const std::int64_t count = check_pair("relu_backward", context, dy, dx);
  check_dtype("relu_backward", "y", y, dy.dtype);
  check_count("relu_backward", "y", y, count);
  if constexpr (engine::cuda::kBuilt) {
    if (on_cuda(context)) return cuda::relu_backward(context, y, dy, count, dx, write);
  }
  if (dy.dtype == DType::kF32) {
    fast().relu_backward(y.as<float>(), dy.as<float>(), count, dx.as<float>(), write == Write::kAdd,
                         *context.threads);
  } else {
    reference::relu_backward(y.as<double>(), dy.as<double>(), count, dx.as<double>(), write);
  }
}

void add_forward(KernelContext& context, TensorView a, TensorView b, bool relu, TensorView y) {
  const std::int64_t count = check_pair("add_forward", context, a, y);
  check_like("add_forward", "b", b, a);
  if constexpr (engine::cuda::kBuilt) {
    if (on_cuda(context)) return cuda::add_forward(context, a, b, relu, count, y);
  }
  if (a.dtype == DType::kF32) {
    fast().add_forward(a.as<float>(), b.as<float>(), relu, count, y.as<float>(), *context.threads);
  } else {
    reference::add_forward(a.as<double>(), b.as<double>(), relu, count, y.as<double>());
  }
}

void copy_or_add(KernelContext& context, TensorView from, TensorView to, Write write) {
  const std::int64_t count = check_pair("copy_or_add", context, from, to);
  if constexpr (engine::cuda::kBuilt) {
    if (on_cuda(context)) return cuda::copy_or_add(context, from, count, to, write);
  }
  if (from.dtype == DType::kF32) {
    fast().copy_or_add(from.as<float>(), count, to.as<float>(), write == Write::kAdd,
                       *context.threads);
  } else {
    reference::copy_or_add(from.as<double>(), count, to.as<double>(), write);
  }
}

namespace {

void dropout(KernelContext& context, const TensorView& from, double rate, std::uint64_t key,
             std::uint64_t epoch, std::span<const std::int64_t> sample_ids, std::int64_t count,
             const TensorView& to, Write write) {
  const std::int64_t n = static_cast<std::int64_t>(sample_ids.size());
  // uniform_float(word) >= rate, in whole numbers: both sides times 2^24, which is exact.
  const std::uint32_t threshold = static_cast<std::uint32_t>(std::ceil(rate * 0x1p24));
  const float factor = rate < 1 ? static_cast<float>(1 / (1 - rate)) : 0.0f;
  if constexpr (engine::cuda::kBuilt) {
    if (on_cuda(context))
      return cuda::dropout(context, from, {key, threshold, factor}, sample_ids.data(), n, count, to,
                           write);
  }
  if (from.dtype == DType::kF32) {
    const DropoutSizes sizes{n, count, key, epoch, threshold, factor};
    fast().dropout(sizes, sample_ids.data(), from.as<float>(), to.as<float>(), write == Write::kAdd,
                   *context.threads);
  } else {
    reference::dropout(from.as<double>(), rate, key, epoch, sample_ids, count, to.as<double>(),
                       write);
  }
}

}  // namespace

void dropout_forward(KernelContext& context, TensorView x, double rate, std::uint64_t key,
                     std::uint64_t epoch, std::span<const std::int64_t> sample_ids, TensorView y) {
  const std::int64_t count = check_dropout("dropout_forward", context, x, rate, sample_ids, y);
  dropout(context, x, rate, key, epoch, sample_ids, count, y, Write::kOverwrite);
}

void dropout_backward(KernelContext& context, TensorView dy, double rate, std::uint64_t key,
                      std::uint64_t epoch, std::span<const std::int64_t> sample_ids, TensorView dx,
                      Write write) {
  const std::int64_t count = check_dropout("dropout_backward", context, dy, rate, sample_ids, dx);
  dropout(context, dy, rate, key, epoch, sample_ids, count, dx, write);
}

void nhwc_to_channel_first(KernelContext& context, TensorView x, TensorView y, Write write) {
  const auto [n, pixels, channels] = check_flatten("nhwc_to_channel_first", context, x, y);
  if constexpr (engine::cuda::kBuilt) {
    if (on_cuda(context)) return cuda::transpose_samples(context, x, n, pixels, channels, y, write);
  }
  if (x.dtype == DType::kF32) {
    fast().transpose(x.as<float>(), n, pixels, channels, y.as<float>(), write == Write::kAdd,
                     *context.threads);
  } else {
    reference::transpose_samples(x.as<double>(), n, pixels, channels, y.as<double>(), write);
  }
}

void channel_first_to_nhwc(KernelContext& context, TensorView x, TensorView y, Write write) {
  const auto [n, pixels, channels] = check_flatten("channel_first_to_nhwc", context, y, x);
  if constexpr (engine::cuda::kBuilt) {
    if (on_cuda(context)) return cuda::transpose_samples(context, x, n, channels, pixels, y, write);
  }
  if (x.dtype == DType::kF32) {
    fast().transpose(x.as<float>(), n, channels, pixels, y.as<float>(), write == Write::kAdd,
                     *context.threads);
  } else {
    reference::transpose_samples(x.as<double>(), n, channels, pixels, y.as<double>(), write);
  }
}

void cast(KernelContext& context, TensorView from, TensorView to) {
  if (!on_cuda(context) || to.dtype != DType::kF32)
    check_dtype("cast", "the input", from, DType::kF32);
  check_floating("cast", "the input", from);
  check_floating("cast", "the output", to);
  check_count("cast", "the output", to, from.count());
  check_context("cast", context);
  if constexpr (engine::cuda::kBuilt) {
    if (on_cuda(context)) return cuda::cast(context, from, from.count(), to);
  }
  if (to.dtype == DType::kF32) return copy_or_add(context, from, to, Write::kOverwrite);
  const float* source = from.as<float>();
  double* target = to.as<double>();
  context.threads->run(from.count(), [=](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t i = first; i < last; ++i) target[i] = source[i];
  });
}

void zero(KernelContext& context, TensorView view) {
  check_dtype("zero", "the output", view, view.dtype);
  check_context("zero", context);
  if (view.count() == 0) return;
  if constexpr (engine::cuda::kBuilt) {
    if (on_cuda(context))
      return engine::cuda::set_bytes_async(view.data, 0, view.bytes(), context.stream);
  }
  std::memset(view.data, 0, view.bytes());
}

void fill(KernelContext& context, double value, TensorView view) {
  check_floating("fill", "the output", view);
  check_context("fill", context);
  if constexpr (engine::cuda::kBuilt) {
    if (on_cuda(context)) return cuda::fill(context, value, view);
  }
  if (view.dtype == DType::kF32)
    std::ranges::fill(view.span<float>(), static_cast<float>(value));
  else
    std::ranges::fill(view.span<double>(), value);
}

void increment(KernelContext& context, TensorView counter) {
  check_dtype("increment", "the counter", counter, DType::kI64);
  check_count("increment", "the counter", counter, 1);
  check_context("increment", context);
  if constexpr (engine::cuda::kBuilt) {
    if (on_cuda(context)) return cuda::increment(context, counter);
  }
  ++*counter.as<std::int64_t>();
}

}  // namespace engine::ops
