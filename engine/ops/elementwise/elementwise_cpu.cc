// Elementwise kernels in float32. Bound: bytes; dropout: the ten rounds of Philox, drawn for kDraws
// blocks at a time.
#include "engine/ops/elementwise/elementwise_cpu.h"

#include "engine/ops/common/eigen_maps.h"
#include "engine/ops/common/flat_loops.h"
#include "engine/ops/common/simd_philox.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

// Eigen's max keeps NaN, as relu() does.
void relu_forward(const float* x, std::int64_t count, float* y, ThreadPool& threads) {
  run_ranges(threads, count, [=](std::int64_t first, std::int64_t last) {
    array_at(y + first, last - first) = array_at(x + first, last - first).max(0.f);
  });
}

// With packets: Eigen 3.4 takes its select() element by element.
template <bool kAdd>
void relu_backward_as(const float* y, const float* dy, std::int64_t count, float* dx,
                      ThreadPool& threads) {
  run_flat(threads, count, [=](auto lanes, std::int64_t i) {
    put<kAdd>(lanes, dx + i,
              select(lanes.load_from(y + i) > zero(), lanes.load_from(dy + i), zero()));
  });
}

void relu_backward(const float* y, const float* dy, std::int64_t count, float* dx, bool add,
                   ThreadPool& threads) {
  (add ? relu_backward_as<true> : relu_backward_as<false>)(y, dy, count, dx, threads);
}

void add_forward(const float* a, const float* b, bool with_relu, std::int64_t count, float* y,
                 ThreadPool& threads) {
  run_ranges(threads, count, [=](std::int64_t first, std::int64_t last) {
    const auto sum = array_at(a + first, last - first) + array_at(b + first, last - first);
    if (with_relu) {
      array_at(y + first, last - first) = sum.max(0.f);
    } else {
      array_at(y + first, last - first) = sum;
    }
  });
}

void copy_or_add(const float* from, std::int64_t count, float* to, bool add, ThreadPool& threads) {
  run_ranges(threads, count, [=](std::int64_t first, std::int64_t last) {
    const auto source = array_at(from + first, last - first);
    if (add) {
      array_at(to + first, last - first) += source;
    } else {
      array_at(to + first, last - first) = source;
    }
  });
}

template <bool kAdd>
void dropout_samples(const DropoutSizes& s, const std::int64_t* sample_ids, const float* from,
                     float* to, std::int64_t first, std::int64_t last) {
  constexpr std::int64_t kStep = 4 * kDraws;
  const std::uint64_t blocks = static_cast<std::uint64_t>(s.count + 3) / 4;
  const Ints threshold = Ints{} + static_cast<std::int32_t>(s.threshold);
  std::uint32_t words[kStep];
  for (std::int64_t sample = first; sample < last; ++sample) {
    const std::uint64_t start = static_cast<std::uint64_t>(sample_ids[sample]) * blocks;
    for (std::int64_t e = 0; e < s.count; e += kStep) {
      philox_words(s.key, s.epoch, start + static_cast<std::uint64_t>(e) / 4, words);
      const std::int64_t base = sample * s.count + e, here = smaller(kStep, s.count - e);
      for_each_vector(0, here, [&](auto lanes, std::int64_t i) {
        Words drawn;
        __builtin_memcpy(&drawn, words + i, sizeof drawn);
        const Floats factor =
            select(reinterpret_cast<Ints>(drawn >> 8) >= threshold, broadcast(s.factor), zero());
        put<kAdd>(lanes, to + base + i, lanes.load_from(from + base + i) * factor);
      });
    }
  }
}

void dropout(const DropoutSizes& s, const std::int64_t* sample_ids, const float* from, float* to,
             bool add, ThreadPool& threads) {
  const auto run = add ? dropout_samples<true> : dropout_samples<false>;
  threads.run(s.n, [&](std::int64_t first, std::int64_t last, int) {
    run(s, sample_ids, from, to, first, last);
  });
}

// A square of 4x4 places: columns of `from` become rows of `to`.
template <bool kAdd>
ENGINE_INLINE void transpose_square(const float* from, std::int64_t from_stride, float* to,
                                    std::int64_t to_stride) {
  QuadSquare square;
  for (int r = 0; r < 4; ++r) square.packet[r] = load_quad(from + r * from_stride);
  transpose(square);
  for (int r = 0; r < 4; ++r) {
    float* row = to + r * to_stride;
    store_quad(row, kAdd ? load_quad(row) + square.packet[r] : square.packet[r]);
  }
}

// Four rows at a time; what does not fill a square goes one by one.
template <bool kAdd>
void transpose_samples(const float* from, std::int64_t rows, std::int64_t columns, float* to,
                       std::int64_t first, std::int64_t last) {
  const std::int64_t square_rows = rows / 4 * 4, square_columns = columns / 4 * 4;
  for (std::int64_t sample = first; sample < last; ++sample) {
    const float* source = from + sample * rows * columns;
    float* target = to + sample * rows * columns;
    const auto one_by_one = [=](std::int64_t r, std::int64_t start) {
      for (std::int64_t c = start; c < columns; ++c) {
        float& place = target[c * rows + r];
        place = kAdd ? place + source[r * columns + c] : source[r * columns + c];
      }
    };
    for (std::int64_t r = 0; r < square_rows; r += 4) {
      for (std::int64_t c = 0; c < square_columns; c += 4) {
        transpose_square<kAdd>(source + r * columns + c, columns, target + c * rows + r, rows);
      }
      for (std::int64_t k = r; k < r + 4; ++k) one_by_one(k, square_columns);
    }
    for (std::int64_t r = square_rows; r < rows; ++r) one_by_one(r, 0);
  }
}

void transpose(const float* from, std::int64_t n, std::int64_t rows, std::int64_t columns,
               float* to, bool add, ThreadPool& threads) {
  const auto run = add ? transpose_samples<true> : transpose_samples<false>;
  threads.run(n, [=](std::int64_t first, std::int64_t last, int) {
    run(from, rows, columns, to, first, last);
  });
}

}  // namespace

const ElementwiseTable elementwise_table{relu_forward, relu_backward, add_forward,
                                         copy_or_add,  dropout,       transpose};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
