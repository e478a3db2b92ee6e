// Products of floats or bf16, with vectors along the channels. Bound by bytes.
#include "engine/ops/elementwise/multiply_cpu.h"

#include "engine/ops/common/cpu_operands.h"
#include "engine/ops/common/flat_loops.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

// Rows [first, last) of `wide`; `narrow` has a row for each sample.
template <bool kAdd>
void scale_rows(const Stored* wide, const Stored* narrow, const MultiplySizes& s, Stored* to,
                std::int64_t first, std::int64_t last) {
  for (std::int64_t row = first; row < last; ++row) {
    const Stored* factors = narrow + row / s.pixels * s.channels;
    for_each_vector(0, s.channels, [&](auto lanes, std::int64_t c) {
      const std::int64_t i = row * s.channels + c;
      put<kAdd>(lanes, to + i, lanes.load_from(wide + i) * lanes.load_from(factors + c));
    });
  }
}

void scale(const TensorView& wide, const TensorView& narrow, const MultiplySizes& s,
           const TensorView& to, bool add, ThreadPool& threads) {
  const Stored *source = stored(wide), *factors = stored(narrow);
  Stored* target = stored(to);
  const auto run = add ? scale_rows<true> : scale_rows<false>;
  threads.run(s.n * s.pixels, [=, &s](std::int64_t first, std::int64_t last, int) {
    run(source, factors, s, target, first, last);
  });
}

template <bool kAdd>
void sum_samples(const Stored* a, const Stored* b, const MultiplySizes& s, Stored* to,
                 std::int64_t first, std::int64_t last) {
  for (std::int64_t sample = first; sample < last; ++sample) {
    for_each_vector(0, s.channels, [&](auto lanes, std::int64_t c) {
      const std::int64_t start = sample * s.pixels * s.channels + c;
      const auto product = [&](std::int64_t pixel) {
        const std::int64_t i = start + pixel * s.channels;
        return lanes.load_from(a + i) * lanes.load_from(b + i);
      };
      Floats sum[4] = {};  // four chains: a multiply-add takes four cycles
      std::int64_t p = 0;
      for (; p + 4 <= s.pixels; p += 4)
        for (int k = 0; k < 4; ++k) sum[k] += product(p + k);
      for (; p < s.pixels; ++p) sum[0] += product(p);
      put<kAdd>(lanes, to + sample * s.channels + c, (sum[0] + sum[1]) + (sum[2] + sum[3]));
    });
  }
}

void sum(const TensorView& a_operand, const TensorView& b_operand, const MultiplySizes& s,
         const TensorView& to, bool add, ThreadPool& threads) {
  const Stored *a = stored(a_operand), *b = stored(b_operand);
  Stored* target = stored(to);
  const auto run = add ? sum_samples<true> : sum_samples<false>;
  threads.run(s.n, [=, &s](std::int64_t first, std::int64_t last, int) {
    run(a, b, s, target, first, last);
  });
}

}  // namespace

const MultiplyTable multiply_table{scale, sum};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
