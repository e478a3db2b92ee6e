// RMS normalization in float32. A row is small and stays in L1: one pass for its statistic, one to
// write. The gradient of gamma: each thread has a range of columns and processes all rows, so that
// the order of a sum is the same for any number of threads; sums are float32 within a block of
// parts, then the blocks are added. Bound by bytes.
#include "engine/ops/rms_norm/rms_norm_cpu.h"

#include "engine/ops/common/cpu_operands.h"
#include "engine/ops/common/flat_loops.h"
#include "engine/ops/norm/row_sum_cpu.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kBlockParts = 64;

// Calls body(part, offset of its first element) for the parts of rows [first, last).
template <class Body>
ENGINE_INLINE void for_each_part(const RmsNormSizes& s, std::int64_t first, std::int64_t last,
                                 Body body) {
  for (std::int64_t row = first; row < last; ++row)
    for (std::int64_t i = 0; i < s.count; ++i)
      body(row * s.count + i, row * s.stride + s.first + i * s.width);
}

void forward(const RmsNormForward& o, const RmsNormSizes& s, ThreadPool& threads) {
  const float *x = floats(o.x), *gamma = floats(o.gamma);
  const double eps = o.eps;
  float *y = floats(o.y), *inverse_rms = floats(o.inverse_rms);
  threads.run(s.rows, [=](std::int64_t first, std::int64_t last, int) {
    for_each_part(s, first, last, [=](std::int64_t part, std::int64_t at) {
      const float *from = x + at, squares = sum_row(s.width, [=](auto lanes, std::int64_t c) {
                                    const Floats v = lanes.load_from(from + c);
                                    return v * v;
                                  });
      const double mean = static_cast<double>(squares) / static_cast<double>(s.width);
      const float inverse = static_cast<float>(1 / __builtin_sqrt(mean + eps));
      const Floats scale = broadcast(inverse);
      for_each_vector(0, s.width, [=](auto lanes, std::int64_t c) {
        lanes.store_to(y + at + c, lanes.load_from(from + c) * scale * lanes.load_from(gamma + c));
      });
      if (inverse_rms != nullptr) inverse_rms[part] = inverse;
    });
  });
}

template <bool kAdd>
void backward_part(const float* x, std::int64_t width, const float* gamma, float inverse,
                   const float* dy, float* dx) {
  const float products = sum_row(width, [=](auto lanes, std::int64_t c) {
    return lanes.load_from(dy + c) * lanes.load_from(gamma + c) * lanes.load_from(x + c);
  });
  const float share = products * inverse * inverse * inverse / static_cast<float>(width);
  const Floats scale = broadcast(inverse), factor = broadcast(share);
  for_each_vector(0, width, [=](auto lanes, std::int64_t c) {
    const Floats g = lanes.load_from(dy + c) * lanes.load_from(gamma + c);
    put<kAdd>(lanes, dx + c, g * scale - lanes.load_from(x + c) * factor);
  });
}

void backward_data(const RmsNormBackward& o, const RmsNormSizes& s, ThreadPool& threads) {
  const float *x = floats(o.x), *gamma = floats(o.gamma), *dy = floats(o.dy);
  const float* inverse_rms = floats(o.inverse_rms);
  float* dx = floats(o.dx);
  const auto one = o.dx_write == Write::kAdd ? backward_part<true> : backward_part<false>;
  threads.run(s.rows, [=](std::int64_t first, std::int64_t last, int) {
    for_each_part(s, first, last, [=](std::int64_t part, std::int64_t at) {
      one(x + at, s.width, gamma, inverse_rms[part], dy + at, dx + at);
    });
  });
}

// Computes the gradient of gamma for kVectors adjacent vectors of columns from `c` on: memory is
// read in longer runs.
template <int kVectors, class Lanes>
ENGINE_INLINE void backward_columns(const RmsNormBackward& o, const RmsNormSizes& s, std::int64_t c,
                                    Lanes lanes) {
  const float *x = floats(o.x), *dy = floats(o.dy);  // null if there are no rows
  const float* inverse_rms = floats(o.inverse_rms);
  float* dgamma = floats(o.dgamma) + c;
  const bool add = o.parameter_write == Write::kAdd;
  Floats sum[kVectors], block[kVectors] = {};
  for (int v = 0; v < kVectors; ++v) sum[v] = add ? lanes.load_from(dgamma + v * kWidth) : zero();
  const auto flush = [&] {
    for (int v = 0; v < kVectors; ++v) sum[v] += block[v], block[v] = zero();
  };
  for_each_part(s, 0, s.rows, [&](std::int64_t part, std::int64_t at) {
    const Floats scale = broadcast(inverse_rms[part]);
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t i = at + c + v * kWidth;
      block[v] += lanes.load_from(dy + i) * (lanes.load_from(x + i) * scale);
    }
    if (part % kBlockParts == kBlockParts - 1) flush();
  });
  flush();
  for (int v = 0; v < kVectors; ++v) lanes.store_to(dgamma + v * kWidth, sum[v]);
}

void backward(const RmsNormBackward& o, const RmsNormSizes& s, ThreadPool& threads) {
  threads.run((s.width + kWidth - 1) / kWidth, [&](std::int64_t first, std::int64_t last, int) {
    constexpr int kVectors = 4;
    const std::int64_t end = smaller(last * kWidth, s.width);
    std::int64_t c = first * kWidth;
    for (; c + kVectors * kWidth <= end; c += kVectors * kWidth)
      backward_columns<kVectors>(o, s, c, AllLanes{});
    for_each_vector(c, end,
                    [&](auto lanes, std::int64_t i) { backward_columns<1>(o, s, i, lanes); });
  });
  if (o.dx.data != nullptr) backward_data(o, s, threads);
}

}  // namespace

const RmsNormTable rms_norm_table{forward, backward};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
