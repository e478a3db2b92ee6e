// Attention of the next positions of texts: checks, the division among threads, and plain loops for
// float64.
#include "engine/ops/extension/attention_extend.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "engine/ops/attention/attention_cuda.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/extension/attention_extend_cpu.h"
#include "engine/ops/extension/attention_extend_cuda.h"

namespace engine::ops {
namespace {

struct Sizes {
  std::int64_t n, t, heads, kv_heads, size, capacity;
};

Sizes check(const KernelContext& context, const CausalAttentionExtend& o) {
  constexpr const char* kName = "causal_attention_extend";
  check_floating(kName, "qkv", o.qkv);
  const Shape& shape = o.qkv.shape;
  require(o.heads >= 1 && o.kv_heads >= 1 && o.heads % o.kv_heads == 0, "kv_heads divides heads");
  const std::int64_t all = o.heads + 2 * o.kv_heads;
  if (shape.rank() != 3 || shape[2] % all != 0)
    throw ShapeError(std::string(kName) + ": qkv has the shape " + shape.to_string() +
                     ", expected [n, t, width] with a width that " + std::to_string(all) +
                     " heads divide");
  if (o.kept.shape.rank() != 4)
    throw ShapeError(std::string(kName) + ": kept has the shape " + o.kept.shape.to_string() +
                     ", expected [n, 2 * kv_heads, capacity, size]");
  const Sizes s{shape[0], shape[1], o.heads, o.kv_heads, shape[2] / all, o.kept.shape[2]};
  check_dtype(kName, "kept", o.kept, o.qkv.dtype);
  check_shape(kName, "kept", o.kept, {s.n, 2 * s.kv_heads, s.capacity, s.size});
  check_dtype(kName, "y", o.y, o.qkv.dtype);
  check_shape(kName, "y", o.y, {s.n, s.t, s.heads * s.size});
  check_context(kName, context);
  if (on_cuda(context) && s.size > cuda::kMaxHeadSize)
    throw ShapeError(std::string(kName) + ": heads of " + std::to_string(s.size) +
                     ", expected at most " + std::to_string(cuda::kMaxHeadSize) +
                     " on a CUDA device: take more heads");
  require(std::ssize(o.earlier) == s.n, "each text has a number of earlier positions");
  for (const std::int64_t earlier : o.earlier)
    if (earlier < 0 || earlier > s.capacity - s.t)
      throw ShapeError(std::string(kName) + ": " + std::to_string(s.t) + " positions after " +
                       std::to_string(earlier) + ", expected at most " +
                       std::to_string(s.capacity) + " in all");
  return s;
}

template <class T>
void extend_reference(const ExtendedHead<T>& h) {
  for (std::int64_t i = 0; i < h.t; ++i)
    for (std::int64_t c = 0; c < h.size; ++c) {
      h.keys[(h.earlier + i) * h.size + c] = h.k[i * h.qkv_stride + c];
      h.values[(h.earlier + i) * h.size + c] = h.v[i * h.qkv_stride + c];
    }
  const auto score = [&](std::int64_t i, std::int64_t j) {
    T sum = 0;
    for (std::int64_t c = 0; c < h.size; ++c)
      sum += h.q[i * h.qkv_stride + c] * h.keys[j * h.size + c];
    return sum / std::sqrt(static_cast<T>(h.size));
  };
  for (std::int64_t i = 0; i < h.t; ++i) {
    T* y = h.y + i * h.y_stride;
    const std::int64_t keys = h.earlier + i + 1;
    T largest = score(i, 0), sum = 0;
    for (std::int64_t j = 1; j < keys; ++j) largest = std::fmax(largest, score(i, j));
    std::fill_n(y, h.size, T{0});
    for (std::int64_t j = 0; j < keys; ++j) {
      const T p = std::exp(score(i, j) - largest);
      sum += p;
      for (std::int64_t c = 0; c < h.size; ++c) y[c] += p * h.values[j * h.size + c];
    }
    for (std::int64_t c = 0; c < h.size; ++c) y[c] /= sum;
  }
}

// Calls body for every head of queries of every text, on all threads: one thread for those that
// share keys and values, since each call writes them.
template <class T, class Body>
void for_each_head(KernelContext& context, const Sizes& s, const CausalAttentionExtend& o,
                   Body body) {
  const std::int64_t group = s.heads / s.kv_heads, width = s.heads * s.size,
                     stride = width + 2 * s.kv_heads * s.size, kept_head = s.capacity * s.size;
  context.threads->run(s.n * s.kv_heads, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t i = first * group; i < last * group; ++i) {
      const std::int64_t sample = i / s.heads, head = i % s.heads, kv_head = head / group;
      const T* row = o.qkv.as<T>() + sample * s.t * stride;
      T* keys = o.kept.as<T>() + (2 * sample * s.kv_heads + kv_head) * kept_head;
      body(ExtendedHead<T>{.t = s.t,
                           .earlier = o.earlier[static_cast<std::size_t>(sample)],
                           .size = s.size,
                           .q = row + head * s.size,
                           .k = row + width + kv_head * s.size,
                           .v = row + width + (s.kv_heads + kv_head) * s.size,
                           .qkv_stride = stride,
                           .keys = keys,
                           .values = keys + s.kv_heads * kept_head,
                           .y = o.y.as<T>() + sample * s.t * width + head * s.size,
                           .y_stride = width});
    }
  });
}

}  // namespace

void causal_attention_extend(KernelContext& context, const CausalAttentionExtend& o) {
  const Sizes s = check(context, o);
  dispatch(
      context, o.qkv.dtype, [&] { for_each_head<double>(context, s, o, extend_reference<double>); },
      [&] { for_each_head<float>(context, s, o, isa_table_of_attention_extend_table().extend); },
      [&] { cuda::causal_attention_extend(context, o); });
}

}  // namespace engine::ops
