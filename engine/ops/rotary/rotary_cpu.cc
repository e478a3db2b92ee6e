// Rotary position embedding in float32: the cosines and sines of a position serve all heads and
// samples. Bound by bytes.
#include "engine/ops/rotary/rotary_cpu.h"

#include "engine/ops/common/cpu_operands.h"
#include "engine/ops/common/flat_loops.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

template <bool kAdd>
void rotate_row(const float* x, const RotarySizes& s, const float* cosines, float* y) {
  const float* sines = cosines + s.half;
  for (std::int64_t head = 0; head < s.heads; ++head, x += 2 * s.half, y += 2 * s.half)
    for_each_vector(0, s.half, [=](auto lanes, std::int64_t i) {
      const Floats a = lanes.load_from(x + i), b = lanes.load_from(x + s.half + i),
                   c = lanes.load_from(cosines + i), turned = lanes.load_from(sines + i);
      put<kAdd>(lanes, y + i, a * c - b * turned);
      put<kAdd>(lanes, y + s.half + i, b * c + a * turned);
    });
  if (!kAdd && x == y) return;
  for_each_vector(0, s.width - s.heads * 2 * s.half, [=](auto lanes, std::int64_t i) {
    put<kAdd>(lanes, y + i, lanes.load_from(x + i));
  });
}

void rotate(const Rotary& o, const RotarySizes& s, const float* table, ThreadPool& threads) {
  const float* x = floats(o.x);
  float* y = floats(o.y);
  const auto one = o.write == Write::kAdd ? rotate_row<true> : rotate_row<false>;
  threads.run(s.rows, [=](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t row = first; row < last; ++row)
      one(x + row * s.width, s, table + row % s.t * 2 * s.half, y + row * s.width);
  });
}

}  // namespace

const RotaryTable rotary_table{rotate};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
