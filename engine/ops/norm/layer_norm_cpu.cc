// Layer normalization in float32. A row is small and stays in L1: two passes for its statistics,
// one to write. Gradients of the parameters: each thread has a range of columns and processes all
// rows, so that the order of a sum is the same for any number of threads. Sums are float32 within a
// block of rows, then the blocks are added, which keeps rounding errors small. Bound by bytes.
#include "engine/ops/norm/layer_norm_cpu.h"

#include "engine/ops/common/cpu_operands.h"
#include "engine/ops/common/flat_loops.h"
#include "engine/ops/norm/row_sum_cpu.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kBlockRows = 64;

void forward(const LayerNormForward& o, ThreadPool& threads) {
  const std::int64_t width = count(o.gamma), rows = width > 0 ? count(o.x) / width : 0;
  const float *x = floats(o.x), *gamma = floats(o.gamma), *beta = floats(o.beta);
  const double eps = o.eps;
  float *y = floats(o.y), *means = floats(o.statistics);
  float* inverse_stds = means == nullptr ? nullptr : means + rows;
  const float share = static_cast<float>(1 / static_cast<double>(width));
  threads.run(rows, [=](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t r = first; r < last; ++r) {
      const float* from = x + r * width;
      float* to = y + r * width;
      const float mean = share * sum_row(width, [=](auto lanes, std::int64_t c) {
                           return lanes.load_from(from + c);
                         });
      const Floats center = broadcast(mean);
      const float variance = share * sum_row(width, [=](auto lanes, std::int64_t c) {
                               const Floats d =
                                   lanes.choose(lanes.load_from(from + c) - center, zero());
                               return d * d;
                             });
      const float inverse =
          static_cast<float>(1 / __builtin_sqrt(static_cast<double>(variance) + eps));
      const Floats scale = broadcast(inverse);
      for_each_vector(0, width, [=](auto lanes, std::int64_t c) {
        const Floats xhat = (lanes.load_from(from + c) - center) * scale;
        lanes.store_to(to + c, xhat * lanes.load_from(gamma + c) + lanes.load_from(beta + c));
      });
      if (means != nullptr) means[r] = mean, inverse_stds[r] = inverse;
    }
  });
}

template <bool kAdd>
void backward_row(const float* x, std::int64_t width, const float* gamma, float mean,
                  float inverse_std, const float* dy, float* dx) {
  const Floats center = broadcast(mean), scale = broadcast(inverse_std);
  Floats sums = zero(), products = zero();
  for_each_vector(0, width, [&](auto lanes, std::int64_t c) {  // g is 0 beyond the row's end
    const Floats g = lanes.load_from(dy + c) * lanes.load_from(gamma + c);
    sums += g;
    products += g * (lanes.load_from(x + c) - center);
  });
  const float share = inverse_std / static_cast<float>(width);
  const Floats shift = broadcast(horizontal_sum(sums) * share);
  const Floats factor = broadcast(horizontal_sum(products) * inverse_std * inverse_std * share);
  for_each_vector(0, width, [=](auto lanes, std::int64_t c) {
    const Floats g = lanes.load_from(dy + c) * lanes.load_from(gamma + c);
    put<kAdd>(lanes, dx + c, g * scale - shift - (lanes.load_from(x + c) - center) * factor);
  });
}

void backward_data(const LayerNormBackwardData& o, ThreadPool& threads) {
  const std::int64_t width = count(o.gamma), rows = width > 0 ? count(o.x) / width : 0;
  const float *x = floats(o.x), *gamma = floats(o.gamma), *dy = floats(o.dy);
  const float *mean = floats(o.statistics), *inverse_std = mean + rows;
  float* dx = floats(o.dx);
  const auto row = o.write == Write::kAdd ? backward_row<true> : backward_row<false>;
  threads.run(rows, [=](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t r = first; r < last; ++r)
      row(x + r * width, width, gamma, mean[r], inverse_std[r], dy + r * width, dx + r * width);
  });
}

// Computes the gradients of the parameters for kVectors adjacent vectors of columns from `c` on:
// the values of a row are loaded once for all of them, and memory is read in longer runs.
template <int kVectors, class Lanes>
ENGINE_INLINE void backward_columns(const LayerNormBackwardParameters& o, std::int64_t rows,
                                    std::int64_t width, std::int64_t c, Lanes lanes) {
  const float *x = floats(o.x), *dy = floats(o.dy);  // null if there are no rows
  const float *mean = floats(o.statistics), *inverse_std = mean + rows;
  float *dgamma = floats(o.dgamma) + c, *dbeta = floats(o.dbeta) + c;
  const bool add = o.write == Write::kAdd;
  Floats sum[kVectors], product[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    sum[v] = add ? lanes.load_from(dbeta + v * kWidth) : zero();
    product[v] = add ? lanes.load_from(dgamma + v * kWidth) : zero();
  }
  for (std::int64_t start = 0; start < rows; start += kBlockRows) {
    Floats block_sum[kVectors] = {}, block_product[kVectors] = {};
    for (std::int64_t r = start; r < smaller(rows, start + kBlockRows); ++r) {
      const Floats center = broadcast(mean[r]), scale = broadcast(inverse_std[r]);
      for (int v = 0; v < kVectors; ++v) {
        const std::int64_t at = r * width + c + v * kWidth;
        const Floats g = lanes.load_from(dy + at);
        block_sum[v] += g;
        block_product[v] += g * ((lanes.load_from(x + at) - center) * scale);
      }
    }
    for (int v = 0; v < kVectors; ++v) sum[v] += block_sum[v], product[v] += block_product[v];
  }
  for (int v = 0; v < kVectors; ++v) {
    lanes.store_to(dbeta + v * kWidth, sum[v]);
    lanes.store_to(dgamma + v * kWidth, product[v]);
  }
}

void backward_parameters(const LayerNormBackwardParameters& o, ThreadPool& threads) {
  const std::int64_t width = count(o.dgamma), rows = width > 0 ? count(o.x) / width : 0;
  threads.run((width + kWidth - 1) / kWidth, [&](std::int64_t first, std::int64_t last, int) {
    constexpr int kVectors = 4;
    const std::int64_t end = smaller(last * kWidth, width);
    std::int64_t c = first * kWidth;
    for (; c + kVectors * kWidth <= end; c += kVectors * kWidth)
      backward_columns<kVectors>(o, rows, width, c, AllLanes{});
    for_each_vector(
        c, end, [&](auto lanes, std::int64_t i) { backward_columns<1>(o, rows, width, i, lanes); });
  });
}

}  // namespace

const LayerNormTable layer_norm_table{forward, backward_data, backward_parameters};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
