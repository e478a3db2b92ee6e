// Checks and dispatches causal self-attention.
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

AttentionSizes check(const char* kernel, const KernelContext& context, const TensorView& qkv,
                     std::int64_t heads, const AttentionDropout& dropout, const TensorView& y) {
  check_floating(kernel, "qkv", qkv);
  if (qkv.shape.rank() != 3 || heads < 1 || qkv.shape[2] % (3 * heads) != 0)
    throw ShapeError(std::string(kernel) + ": qkv has the shape " + qkv.shape.to_string() +
                     ", expected [n, t, 3 * width] with a width that " + std::to_string(heads) +
                     " heads divide");
  const std::int64_t n = qkv.shape[0], t = qkv.shape[1], width = qkv.shape[2] / 3;
  check_dtype(kernel, "y", y, qkv.dtype);
  check_shape(kernel, "y", y, {n, t, width});
  check_context(kernel, context);
  check_context(kernel, context,
                attention_scratch_bytes({n, t, width, heads, qkv.dtype,
                                         on_cuda(context) ? 1 : context.threads->threads(),
                                         context.device.kind, context.products}));
  if (on_cuda(context) && width / heads > cuda::kMaxHeadSize)
    throw ShapeError(std::string(kernel) + ": heads of " + std::to_string(width / heads) +
                     ", expected at most " + std::to_string(cuda::kMaxHeadSize) +
                     " on a CUDA device: take more heads");
  if (!(dropout.rate >= 0 && dropout.rate < 1))
    throw ModelError(std::string(kernel) + ": dropout " + std::to_string(dropout.rate) +
                     ", expected a number in [0, 1)");
  AttentionSizes s{n, t, heads, width / heads, dropout.key, dropout.epoch, 0, 1, nullptr};
  if (dropout.rate == 0) return s;
  if (static_cast<std::int64_t>(dropout.sample_ids.size()) != n)
    throw ShapeError(std::string(kernel) + ": " + std::to_string(dropout.sample_ids.size()) +
                     " sample ids for a batch of " + std::to_string(n));
  s.threshold = static_cast<std::uint32_t>(std::ceil(dropout.rate * 0x1p24));
  s.factor = static_cast<float>(1 / (1 - dropout.rate));
  s.sample_ids = dropout.sample_ids.data();
  return s;
}

// Calls body(head, offset of its first element in y) for every head of every sample, on all
// threads.
template <class Operands, class Body>
void for_each_head(KernelContext& context, const AttentionSizes& s, const Operands& o, Body body) {
  context.threads->run(s.n * s.heads, [&](std::int64_t first, std::int64_t last, int) {
    double* lse = o.lse.template as<double>();
    const double rate = o.dropout.rate;
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t sample = i / s.heads, h = i % s.heads, width = s.heads * s.size;
      const double* q = o.qkv.template as<double>() + sample * s.t * 3 * width + h * s.size;
      const std::int64_t id = rate > 0 ? s.sample_ids[sample] : 0;
      const auto block = static_cast<std::uint64_t>((id * s.heads + h) * s.t * ((s.t + 3) / 4));
      const reference::AttentionHead<double> head{
          s.t,  s.size, width,   q,    q + width, q + 2 * width, lse ? lse + i * s.t : nullptr,
          rate, s.key,  s.epoch, block};
      body(head, sample * s.t * width + h * s.size);
    }
  });
}

void forward_reference(KernelContext& context, const AttentionSizes& s,
                       const CausalAttentionForward& o) {
  for_each_head(context, s, o, [&](const auto& head, std::int64_t at) {
    reference::causal_attention_forward(head, o.y.as<double>() + at);
  });
}

void backward_reference(KernelContext& context, const AttentionSizes& s,
                        const CausalAttentionBackward& o) {
  double* dqkv = o.dqkv.as<double>();
  if (o.write == Write::kOverwrite)
    context.threads->run(o.dqkv.count(), [=](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t i = first; i < last; ++i) dqkv[i] = 0;
    });
  for_each_head(context, s, o, [&](const auto& head, std::int64_t at) {
    double* dq = dqkv + (head.q - o.qkv.as<double>());
    reference::causal_attention_backward(head, o.y.as<double>() + at, o.dy.as<double>() + at, dq,
                                         dq + head.width, dq + 2 * head.width);
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
      [&] { return cuda::attention_scratch_bytes(of.n, of.t, of.heads); });
}

void causal_attention_forward(KernelContext& context, const CausalAttentionForward& o) {
  constexpr const char* kName = "causal_attention_forward";
  const AttentionSizes s = check(kName, context, o.qkv, o.heads, o.dropout, o.y);
  if (o.lse) {
    check_dtype(kName, "lse", o.lse, wide_dtype(o.qkv.dtype));
    check_shape(kName, "lse", o.lse, {s.n, o.heads, s.t});
  }
  dispatch(
      context, o.qkv.dtype, [&] { forward_reference(context, s, o); },
      [&] { fast(context.products).forward(o, s, *context.threads, scratch_floats(context)); },
      [&] { cuda::causal_attention_forward(context, o); });
}

void causal_attention_backward(KernelContext& context, const CausalAttentionBackward& o) {
  constexpr const char* kName = "causal_attention_backward";
  const AttentionSizes s = check(kName, context, o.qkv, o.heads, o.dropout, o.y);
  check_dtype(kName, "lse", o.lse, wide_dtype(o.qkv.dtype));
  check_shape(kName, "lse", o.lse, {s.n, o.heads, s.t});
  check_like(kName, "dy", o.dy, o.y);
  check_like(kName, "dqkv", o.dqkv, o.qkv);
  dispatch(
      context, o.qkv.dtype, [&] { backward_reference(context, s, o); },
      [&] { fast(context.products).backward(o, s, *context.threads, scratch_floats(context)); },
      [&] { cuda::causal_attention_backward(context, o); });
}

}  // namespace engine::ops
