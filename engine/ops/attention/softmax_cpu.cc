// Softmax in float32. A row is small and stays in L1: one pass for the largest element, one for the
// exponentials, one to divide. Bound by the exponentials, about ten cycles per vector; backward by
// bytes.
#include "engine/ops/attention/softmax_cpu.h"

#include "engine/ops/common/flat_loops.h"
#include "engine/ops/common/simd_math.h"
#include "engine/ops/norm/row_sum_cpu.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

constexpr float kLog2E = 0x1.715476p+0f;

// May ignore a NaN: it shows in the sum of the exponentials.
ENGINE_INLINE float largest_of(const float* x, std::int64_t width) {
  Floats top = broadcast(x[0]);
  for_each_vector(0, width, [&](auto lanes, std::int64_t c) {
    top = max(lanes.choose(lanes.load_from(x + c), top), top);
  });
  return horizontal_max(top);
}

void forward_row(const float* x, std::int64_t width, float* y) {
  const Floats top = broadcast(largest_of(x, width)), unit = broadcast(kLog2E);
  Floats sum = zero();
  for_each_vector(0, width, [&](auto lanes, std::int64_t c) {
    const Floats e = exp2((lanes.load_from(x + c) - top) * unit);
    lanes.store_to(y + c, e);
    sum += lanes.choose(e, zero());
  });
  const Floats factor = broadcast(1 / horizontal_sum(sum));
  for_each_vector(0, width, [=](auto lanes, std::int64_t c) {
    lanes.store_to(y + c, lanes.load_from(y + c) * factor);
  });
}

void forward(const float* x, const RowSizes& s, float* y, ThreadPool& threads) {
  const std::int64_t width = s.width;
  threads.run(s.rows, [=](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t r = first; r < last; ++r) forward_row(x + r * width, width, y + r * width);
  });
}

template <bool kAdd>
void backward_row(const float* y, const float* dy, std::int64_t width, float* dx) {
  const Floats sum = broadcast(sum_row(width, [=](auto lanes, std::int64_t c) {
    return lanes.load_from(y + c) * lanes.load_from(dy + c);
  }));
  for_each_vector(0, width, [=](auto lanes, std::int64_t c) {
    put<kAdd>(lanes, dx + c, lanes.load_from(y + c) * (lanes.load_from(dy + c) - sum));
  });
}

void backward(const float* y, const float* dy, const RowSizes& s, float* dx, bool add,
              ThreadPool& threads) {
  const std::int64_t width = s.width;
  const auto one = add ? backward_row<true> : backward_row<false>;
  threads.run(s.rows, [=](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t r = first; r < last; ++r)
      one(y + r * width, dy + r * width, width, dx + r * width);
  });
}

}  // namespace

const SoftmaxTable softmax_table{forward, backward};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
