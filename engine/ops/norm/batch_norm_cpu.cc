// Batch normalization in float32 of activations stored as floats or bf16: each phase makes one pass
// over memory, with vectors along the channels and the rows divided among the threads.
//
// Sums are float32 within a block of rows and float64 across blocks, parts and threads. The
// statistics of a block are computed relative to the mean of the rows before it: the cancellation
// in sum(d^2) - sum(d)^2 / n is then no larger than the contribution of that difference of means to
// the total. The first, short block is relative to its first row instead, a member of the set: its
// rounding error is at most kFirstRows times as large. Blocks and parts are merged by the pairwise
// formula of Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing
// sample variances", 1979. All phases are bound by bytes. The row loops take their structs by
// value: through a reference each store of floats would make the compiler reload the pointers.
#include "engine/ops/norm/batch_norm_cpu.h"

#include "engine/ops/common/cpu_operands.h"
#include "engine/ops/common/flat_loops.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kBlockRows = 256;
constexpr std::int64_t kFirstRows = 16;
constexpr std::int64_t kPartElements = 8192;  // a smaller part is not worth a thread

ENGINE_INLINE std::int64_t padded(std::int64_t channels) { return (channels + 15) / 16 * 16; }

// The scratch of one thread: `double_sums` [2, padded] in f64, then `block_sums` [3, padded] in
// f32.
constexpr std::int64_t kPartFloats = 2 * 2 + 3;  // times padded(channels)
constexpr std::int64_t kCoefficients = 3;        // arrays of [padded] that one phase prepares

std::int64_t scratch_floats(std::int64_t channels, int threads) {
  return (kCoefficients + threads * kPartFloats) * padded(channels);
}

struct Part {
  double* first;    // [channels]: mean, or sum of g
  double* second;   // [channels]: sum of squared differences, or sum of g (x - mean)
  float* shift;     // [channels]
  float* sums;      // [channels]: for the block
  float* products;  // [channels]: for the block
};

ENGINE_INLINE Part part_at(float* scratch, std::int64_t channels, std::int64_t index) {
  const std::int64_t c = padded(channels);
  float* base = scratch + (kCoefficients + index * kPartFloats) * c;
  double* doubles = reinterpret_cast<double*>(base);
  return {doubles, doubles + c, base + 4 * c, base + 5 * c, base + 6 * c};
}

ENGINE_INLINE std::int64_t part_count(std::int64_t rows, std::int64_t channels,
                                      const ThreadPool& threads) {
  return larger(1, smaller(smaller(rows, threads.threads()), rows * channels / kPartElements));
}

// Divides the rows into parts, one per thread. Calls body(part index, first row, last row).
template <class Body>
ENGINE_INLINE void run_parts(ThreadPool& threads, std::int64_t parts, std::int64_t rows,
                             Body body) {
  threads.run(parts, [=](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t p = first; p < last; ++p) body(p, rows * p / parts, rows * (p + 1) / parts);
  });
}

// Calls body(row count as a constant, lanes, first element, channel) over rows [first, last), kRows
// at a time.
template <std::int64_t kRows>
struct RowCount {
  static constexpr std::int64_t value = kRows;
};
template <std::int64_t kRows, class Body>
ENGINE_INLINE void for_each_step(std::int64_t first, std::int64_t last, std::int64_t channels,
                                 Body body) {
  std::int64_t r = first;
  for (; r + kRows <= last; r += kRows) {
    for_each_vector(0, channels, [&](auto lanes, std::int64_t c) {
      body(RowCount<kRows>{}, lanes, r * channels + c, c);
    });
  }
  for (; kRows > 1 && r < last; ++r) {
    for_each_vector(0, channels, [&](auto lanes, std::int64_t c) {
      body(RowCount<1>{}, lanes, r * channels + c, c);
    });
  }
}

// Processing four rows at a time saves loads of the [channels] operands; wide rows are processed
// one by one, so that each array is one stream.
template <class Body>
ENGINE_INLINE void for_each_row(std::int64_t first, std::int64_t last, std::int64_t channels,
                                Body body) {
  if (channels <= 64) {
    for_each_step<4>(first, last, channels, body);
  } else {
    for_each_step<1>(first, last, channels, body);
  }
}

ENGINE_INLINE void clear(float* values, std::int64_t count) {
  __builtin_memset(values, 0, static_cast<std::size_t>(count) * 4);
}

// Merges n rows of mean m and squared differences q into those of `count` rows in (mean, squares).
ENGINE_INLINE void merge(double count, double n, double m, double q, double& mean,
                         double& squares) {
  const double difference = m - mean, weight = n / (count + n);
  mean += difference * weight;
  squares += q + difference * difference * (count * weight);
}

void block_statistics(const Stored* x, std::int64_t first, std::int64_t last, std::int64_t channels,
                      double rows_before, Part part) {
  clear(part.sums, 2 * padded(channels));
  for (std::int64_t c = 0; c < channels; ++c) {
    part.shift[c] =
        rows_before > 0 ? static_cast<float>(part.first[c]) : element(x + first * channels + c);
  }
  for_each_step<8>(first, last, channels,
                   [&](auto rows, auto lanes, std::int64_t i, std::int64_t c) {
                     constexpr std::int64_t kRows = decltype(rows)::value;
                     const Floats shift = load(part.shift + c);
                     Floats sum[2] = {}, square[2] = {};
                     for (std::int64_t r = 0; r < kRows; ++r) {
                       const Floats d = lanes.load_from(x + i + r * channels) - shift;
                       sum[r % 2] += d;
                       square[r % 2] += d * d;
                     }
                     store(part.sums + c, load(part.sums + c) + (sum[0] + sum[1]));
                     store(part.products + c, load(part.products + c) + (square[0] + square[1]));
                   });
  const double n = static_cast<double>(last - first), inverse = 1 / n;
  for (std::int64_t c = 0; c < channels; ++c) {
    const double sum = part.sums[c];
    const double squares = part.products[c] - sum * sum * inverse;
    merge(rows_before, n, part.shift[c] + sum * inverse, squares < 0 ? 0 : squares, part.first[c],
          part.second[c]);
  }
}

void statistics(const TensorView& x_operand, const TensorView& sums_operand, ThreadPool& threads,
                float* scratch) {
  const Stored* x = stored(x_operand);
  double* sums = doubles(sums_operand);
  const std::int64_t channels = count(sums_operand) / 2, rows = count(x_operand) / channels;
  for (std::int64_t c = 0; c < 2 * channels; ++c) sums[c] = 0;
  const std::int64_t parts = part_count(rows, channels, threads);
  run_parts(threads, parts, rows, [=](std::int64_t index, std::int64_t first, std::int64_t last) {
    const Part part = part_at(scratch, channels, index);
    for (std::int64_t c = 0; c < channels; ++c) part.first[c] = part.second[c] = 0;
    for (std::int64_t r = first; r < last;) {
      const std::int64_t end = smaller(r + (r == first ? kFirstRows : kBlockRows), last);
      block_statistics(x, r, end, channels, static_cast<double>(r - first), part);
      r = end;
    }
  });
  for (std::int64_t p = 0; p < parts && rows > 0; ++p) {
    const Part part = part_at(scratch, channels, p);
    const std::int64_t first = rows * p / parts, last = rows * (p + 1) / parts;
    for (std::int64_t c = 0; c < channels; ++c) {
      merge(static_cast<double>(first), static_cast<double>(last - first), part.first[c],
            part.second[c], sums[c], sums[channels + c]);
    }
  }
}

struct Normalize {
  const Stored *x, *residual;
  const float *mean, *scale, *beta;
  std::int64_t channels;
  Stored* y;
};

template <bool kRelu, bool kResidual>
void normalize_rows(Normalize n, std::int64_t first, std::int64_t last) {
  for_each_row(first, last, n.channels, [&](auto rows, auto lanes, std::int64_t i, std::int64_t c) {
    const Floats mean = lanes.load_from(n.mean + c), scale = lanes.load_from(n.scale + c),
                 beta = lanes.load_from(n.beta + c);
    for (std::int64_t r = 0; r < decltype(rows)::value; ++r) {
      const std::int64_t at = i + r * n.channels;
      Floats value = (lanes.load_from(n.x + at) - mean) * scale + beta;
      if constexpr (kResidual) value += lanes.load_from(n.residual + at);
      if constexpr (kRelu) value = relu(value);
      lanes.store_to(n.y + at, value);
    }
  });
}

void normalize(const BatchNormNormalize& o, ThreadPool& threads, float* scratch) {
  const std::int64_t channels = count(o.mean), rows = count(o.x) / channels;
  const float *inverse_std = floats(o.inverse_std), *gamma = floats(o.gamma);
  for (std::int64_t c = 0; c < channels; ++c) scratch[c] = inverse_std[c] * gamma[c];
  const Normalize n{stored(o.x),    stored(o.residual), floats(o.mean), scratch,
                    floats(o.beta), channels,           stored(o.y)};
  const bool with_residual = n.residual != nullptr;
  const auto run = o.relu ? with_residual ? normalize_rows<true, true> : normalize_rows<true, false>
                   : with_residual ? normalize_rows<false, true>
                                   : normalize_rows<false, false>;
  run_parts(
      threads, part_count(rows, channels, threads), rows,
      [&n, run](std::int64_t, std::int64_t first, std::int64_t last) { run(n, first, last); });
}

enum class Residual { kNone, kOverwrite, kAdd };

struct Backward {
  const Stored *x, *y, *dy;
  const float* mean;
  std::int64_t channels;
  Stored* out;  // dresidual or dx
};

// The gradient before a fused ReLU.
template <bool kRelu, class Lanes>
ENGINE_INLINE Floats gradient(const Backward& b, Lanes lanes, std::int64_t at) {
  const Floats dy = lanes.load_from(b.dy + at);
  if constexpr (!kRelu) return dy;
  return select(lanes.load_from(b.y + at) > zero(), dy, zero());
}

template <bool kRelu, Residual kResidual>
void backward_sums_rows(Backward b, std::int64_t first, std::int64_t last, Part part) {
  for_each_row(first, last, b.channels, [&](auto rows, auto lanes, std::int64_t i, std::int64_t c) {
    const Floats mean = lanes.load_from(b.mean + c);
    Floats sum[2] = {}, product[2] = {};
    for (std::int64_t r = 0; r < decltype(rows)::value; ++r) {
      const std::int64_t at = i + r * b.channels;
      const Floats g = gradient<kRelu>(b, lanes, at);
      sum[r % 2] += g;
      product[r % 2] += g * (lanes.load_from(b.x + at) - mean);
      if constexpr (kResidual != Residual::kNone)
        put<kResidual == Residual::kAdd>(lanes, b.out + at, g);
    }
    store(part.sums + c, load(part.sums + c) + (sum[0] + sum[1]));
    store(part.products + c, load(part.products + c) + (product[0] + product[1]));
  });
}

template <bool kRelu>
ENGINE_INLINE auto backward_sums_for(const Stored* dresidual, bool add) {
  if (dresidual == nullptr) return backward_sums_rows<kRelu, Residual::kNone>;
  return add ? backward_sums_rows<kRelu, Residual::kAdd>
             : backward_sums_rows<kRelu, Residual::kOverwrite>;
}

void backward_sums(const BatchNormBackwardSums& o, ThreadPool& threads, float* scratch) {
  const std::int64_t channels = count(o.mean), rows = count(o.x) / channels;
  const float* inverse_std = floats(o.inverse_std);
  double* sums = doubles(o.sums);
  const Backward b{stored(o.x),    stored(o.y), stored(o.dy),
                   floats(o.mean), channels,    stored(o.dresidual)};
  const bool add = o.write_residual == Write::kAdd;
  const auto run =
      b.y != nullptr ? backward_sums_for<true>(b.out, add) : backward_sums_for<false>(b.out, add);
  const std::int64_t parts = part_count(rows, channels, threads);
  run_parts(
      threads, parts, rows,
      [&b, run, channels, scratch](std::int64_t index, std::int64_t first, std::int64_t last) {
        const Part part = part_at(scratch, channels, index);
        for (std::int64_t c = 0; c < channels; ++c) part.first[c] = part.second[c] = 0;
        for (std::int64_t r = first; r < last; r += kBlockRows) {
          clear(part.sums, 2 * padded(channels));
          run(b, r, smaller(r + kBlockRows, last), part);
          for (std::int64_t c = 0; c < channels; ++c) part.first[c] += part.sums[c];
          for (std::int64_t c = 0; c < channels; ++c) part.second[c] += part.products[c];
        }
      });
  for (std::int64_t c = 0; c < 2 * channels; ++c) sums[c] = 0;
  for (std::int64_t p = 0; p < parts && rows > 0; ++p) {
    const Part part = part_at(scratch, channels, p);
    for (std::int64_t c = 0; c < channels; ++c) sums[c] += part.first[c];
    for (std::int64_t c = 0; c < channels; ++c)
      sums[channels + c] += part.second[c] * inverse_std[c];
  }
}

// dx = scale * ((g - mean_g) - (x - mean) * slope)
struct Coefficients {
  const float *mean_g, *slope, *scale;
};

template <bool kRelu, bool kAdd>
void backward_data_rows(Backward b, Coefficients k, std::int64_t first, std::int64_t last) {
  for_each_row(first, last, b.channels, [&](auto rows, auto lanes, std::int64_t i, std::int64_t c) {
    const Floats mean = lanes.load_from(b.mean + c), mean_g = load(k.mean_g + c),
                 slope = load(k.slope + c), scale = load(k.scale + c);
    for (std::int64_t r = 0; r < decltype(rows)::value; ++r) {
      const std::int64_t at = i + r * b.channels;
      const Floats g = gradient<kRelu>(b, lanes, at) - mean_g;
      put<kAdd>(lanes, b.out + at, (g - (lanes.load_from(b.x + at) - mean) * slope) * scale);
    }
  });
}

void backward_data(const BatchNormBackwardData& o, ThreadPool& threads, float* scratch) {
  const std::int64_t channels = count(o.mean), rows = count(o.x) / channels;
  const float *inverse_std = floats(o.inverse_std), *gamma = floats(o.gamma);
  const double *sums = doubles(o.sums), inverse_rows = 1 / static_cast<double>(o.rows);
  float *mean_g = scratch, *slope = scratch + padded(channels),
        *scale = scratch + 2 * padded(channels);
  for (std::int64_t c = 0; c < channels; ++c) {
    mean_g[c] = static_cast<float>(sums[c] * inverse_rows);
    slope[c] = static_cast<float>(sums[channels + c] * inverse_rows * inverse_std[c]);
    scale[c] = inverse_std[c] * gamma[c];
  }
  const Backward b{stored(o.x), stored(o.y), stored(o.dy), floats(o.mean), channels, stored(o.dx)};
  const bool add = o.write == Write::kAdd;
  const Coefficients k{mean_g, slope, scale};
  const auto run = b.y != nullptr
                       ? add ? backward_data_rows<true, true> : backward_data_rows<true, false>
                   : add ? backward_data_rows<false, true>
                         : backward_data_rows<false, false>;
  run_parts(threads, part_count(rows, channels, threads), rows,
            [&b, &k, run](std::int64_t, std::int64_t first, std::int64_t last) {
              run(b, k, first, last);
            });
}

}  // namespace

const BatchNormTable batch_norm_table{scratch_floats, statistics, normalize, backward_sums,
                                      backward_data};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
