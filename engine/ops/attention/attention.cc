// Checks and dispatches self-attention.
#include "engine/ops/attention/attention.h"

#include <cmath>
#include <string>

#include "engine/ops/attention/attention_cpu.h"
#include "engine/ops/attention/attention_cuda.h"
#include "engine/ops/attention/attention_reference.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"

namespace engine::ops {
namespace {

const AttentionTable& fast(Products products) {
  return in_bf16(products) ? bf16_table_of_attention_table() : isa_table_of_attention_table();
}
float* scratch_floats(const KernelContext& context) {
  return reinterpret_cast<float*>(context.scratch.data());
}

// The sizes of the operands without dropout. Operands: of forward or backward.
template <class Operands>
AttentionSizes check_heads(const char* kernel, const Operands& o) {
  const Shape& qkv = o.qkv.shape;
  check_floating(kernel, "qkv", o.qkv);
  if (o.heads < 1 || o.kv_heads < 1 || o.heads % o.kv_heads != 0)
    throw ShapeError(std::string(kernel) + ": " + std::to_string(o.heads) + " heads and " +
                     std::to_string(o.kv_heads) +
                     " of keys and values, expected the latter to divide the former");
  const std::int64_t all = o.heads + 2 * o.kv_heads;
  if (qkv.rank() != 3 || qkv[2] % all != 0)
    throw ShapeError(std::string(kernel) + ": qkv has the shape " + qkv.to_string() +
                     ", expected [n, t, width] with a width that " + std::to_string(all) +
                     " heads divide");
  const std::int64_t ahead = o.causal ? 0 : qkv[1];
  return {qkv[0], qkv[1], o.heads, o.kv_heads, qkv[2] / all, ahead, 0, 0, 0, 1, nullptr};
}

template <class Operands>
AttentionSizes check(const char* kernel, const KernelContext& context, const Operands& o) {
  AttentionSizes s = check_heads(kernel, o);
  const TensorView &qkv = o.qkv, &y = o.y;
  const AttentionDropout& dropout = o.dropout;
  const std::int64_t n = s.n, t = s.t, heads = s.heads, width = heads * s.size;
  check_dtype(kernel, "y", y, qkv.dtype);
  check_shape(kernel, "y", y, {n, t, width});
  check_context(kernel, context);
  check_context(kernel, context,
                attention_scratch_bytes({n, t, width, heads, qkv.dtype,
                                         on_cuda(context) ? 1 : context.threads->threads(),
                                         context.device.kind, context.products}));
  if (on_cuda(context) && s.size > cuda::kMaxHeadSize)
    throw ShapeError(std::string(kernel) + ": heads of " + std::to_string(s.size) +
                     ", expected at most " + std::to_string(cuda::kMaxHeadSize) +
                     " on a CUDA device: take more heads");
  if (!(dropout.rate >= 0 && dropout.rate < 1))
    throw ModelError(std::string(kernel) + ": dropout " + std::to_string(dropout.rate) +
                     ", expected a number in [0, 1)");
  if (dropout.rate == 0) return s;
  if (static_cast<std::int64_t>(dropout.sample_ids.size()) != n)
    throw ShapeError(std::string(kernel) + ": " + std::to_string(dropout.sample_ids.size()) +
                     " sample ids for a batch of " + std::to_string(n));
  s.key = dropout.key;
  s.epoch = dropout.epoch;
  s.threshold = static_cast<std::uint32_t>(std::ceil(dropout.rate * 0x1p24));
  s.factor = static_cast<float>(1 / (1 - dropout.rate));
  s.sample_ids = dropout.sample_ids.data();
  return s;
}

// Calls body(head, offset of its first element in y) for every head of queries of every sample, on
// all threads; a thread has all heads that read the same keys.
template <class Operands, class Body>
void for_each_head(KernelContext& context, const AttentionSizes& s, const Operands& o, Body body) {
  const std::int64_t group = s.heads / s.kv_heads, width = s.heads * s.size,
                     kv_width = s.kv_heads * s.size, stride = width + 2 * kv_width;
  context.threads->run(s.n * s.kv_heads, [&](std::int64_t first, std::int64_t last, int) {
    double* lse = o.lse.template as<double>();
    const double rate = o.dropout.rate;
    for (std::int64_t i = first * group; i < last * group; ++i) {
      const std::int64_t sample = i / s.heads, h = i % s.heads;
      const double* row = o.qkv.template as<double>() + sample * s.t * stride;
      const double* k = row + width + h / group * s.size;
      const std::int64_t id = rate > 0 ? s.sample_ids[sample] : 0;
      const auto block = static_cast<std::uint64_t>((id * s.heads + h) * s.t * ((s.t + 3) / 4));
      const reference::AttentionHead<double> head{.t = s.t,
                                                  .size = s.size,
                                                  .ahead = s.ahead,
                                                  .width = width,
                                                  .stride = stride,
                                                  .q = row + h * s.size,
                                                  .k = k,
                                                  .v = k + kv_width,
                                                  .lse = lse ? lse + i * s.t : nullptr,
                                                  .rate = rate,
                                                  .key = s.key,
                                                  .epoch = s.epoch,
                                                  .first_block = block};
      body(head, sample * s.t * width + h * s.size);
    }
  });
}

void forward_reference(KernelContext& context, const AttentionSizes& s, const AttentionForward& o) {
  for_each_head(context, s, o, [&](const auto& head, std::int64_t at) {
    reference::attention_forward(head, o.y.as<double>() + at);
  });
}

void backward_reference(KernelContext& context, const AttentionSizes& s,
                        const AttentionBackward& o) {
  double* dqkv = o.dqkv.as<double>();
  if (o.write == Write::kOverwrite)
    context.threads->run(o.dqkv.count(), [=](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t i = first; i < last; ++i) dqkv[i] = 0;
    });
  for_each_head(context, s, o, [&](const auto& head, std::int64_t at) {
    const double* qkv = o.qkv.as<double>();
    reference::attention_backward(head, o.y.as<double>() + at, o.dy.as<double>() + at,
                                  dqkv + (head.q - qkv), dqkv + (head.k - qkv),
                                  dqkv + (head.v - qkv));
  });
}

}  // namespace

std::size_t attention_scratch_bytes(const AttentionScratch& of) {
  return dispatch_device(
      of.device,
      [&]() -> std::size_t {
        if (of.dtype != DType::kF32) return 0;
        return static_cast<std::size_t>(
                   fast(of.products).scratch_floats(of.t, of.width / of.heads, of.threads)) *
               sizeof(float);
      },
      [&] { return cuda::attention_scratch_bytes(of.n, of.t, of.heads, of.dtype); });
}

void attention_forward(KernelContext& context, const AttentionForward& o) {
  constexpr const char* kName = "attention_forward";
  const AttentionSizes s = check(kName, context, o);
  if (o.lse) {
    check_dtype(kName, "lse", o.lse, wide_dtype(o.qkv.dtype));
    check_shape(kName, "lse", o.lse, {s.n, o.heads, s.t});
  }
  dispatch(
      context, o.qkv.dtype, [&] { forward_reference(context, s, o); },
      [&] { fast(context.products).forward(o, s, *context.threads, scratch_floats(context)); },
      [&] { cuda::attention_forward(context, o); });
}

void attention_backward(KernelContext& context, const AttentionBackward& o) {
  constexpr const char* kName = "attention_backward";
  const AttentionSizes s = check(kName, context, o);
  check_dtype(kName, "lse", o.lse, wide_dtype(o.qkv.dtype));
  check_shape(kName, "lse", o.lse, {s.n, o.heads, s.t});
  check_like(kName, "dy", o.dy, o.y);
  check_like(kName, "dqkv", o.dqkv, o.qkv);
  dispatch(
      context, o.qkv.dtype, [&] { backward_reference(context, s, o); },
      [&] { fast(context.products).backward(o, s, *context.threads, scratch_floats(context)); },
      [&] { cuda::attention_backward(context, o); });
}

}  // namespace engine::ops
