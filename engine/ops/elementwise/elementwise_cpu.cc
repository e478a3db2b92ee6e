// Elementwise kernels for floats or bf16. Bound by bytes; dropout by the ten rounds of Philox,
// drawn for kDraws blocks at a time.
#include "engine/ops/elementwise/elementwise_cpu.h"

#include "engine/ops/common/cpu_operands.h"
#include "engine/ops/common/flat_loops.h"
#include "engine/ops/common/simd_philox.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

// to[i] = value(lanes, i), or to[i] += value(lanes, i).
template <bool kAdd, class Value>
ENGINE_INLINE void put_flat(ThreadPool& threads, std::int64_t count, Stored* to, Value value) {
  run_flat(threads, count,
           [=](auto lanes, std::int64_t i) { put<kAdd>(lanes, to + i, value(lanes, i)); });
}

void relu_forward(const TensorView& x, std::int64_t count, const TensorView& y,
                  ThreadPool& threads) {
  put_flat<false>(threads, count, stored(y), [from = stored(x)](auto lanes, std::int64_t i) {
    return relu(lanes.load_from(from + i));
  });
}

template <bool kAdd>
void relu_backward_as(const Stored* y, const Stored* dy, std::int64_t count, Stored* dx,
                      ThreadPool& threads) {
  put_flat<kAdd>(threads, count, dx, [=](auto lanes, std::int64_t i) {
    return select(lanes.load_from(y + i) > zero(), lanes.load_from(dy + i), zero());
  });
}

void relu_backward(const TensorView& y, const TensorView& dy, std::int64_t count,
                   const TensorView& dx, bool add, ThreadPool& threads) {
  const auto run = add ? relu_backward_as<true> : relu_backward_as<false>;
  run(stored(y), stored(dy), count, stored(dx), threads);
}

void add_forward(const TensorView& a_operand, const TensorView& b_operand, bool with_relu,
                 std::int64_t count, const TensorView& y, ThreadPool& threads) {
  const Stored *a = stored(a_operand), *b = stored(b_operand);
  const auto sum = [=](auto lanes, std::int64_t i) {
    return lanes.load_from(a + i) + lanes.load_from(b + i);
  };
  if (with_relu) {
    put_flat<false>(threads, count, stored(y),
                    [=](auto lanes, std::int64_t i) { return relu(sum(lanes, i)); });
  } else {
    put_flat<false>(threads, count, stored(y), sum);
  }
}

void copy_or_add(const TensorView& from, std::int64_t count, const TensorView& to, bool add,
                 ThreadPool& threads) {
  const auto source = [p = stored(from)](auto lanes, std::int64_t i) {
    return lanes.load_from(p + i);
  };
  if (add) {
    put_flat<true>(threads, count, stored(to), source);
  } else {
    put_flat<false>(threads, count, stored(to), source);
  }
}

void narrow(const TensorView& from, std::int64_t count, const TensorView& to, ThreadPool& threads) {
  put_flat<false>(threads, count, stored(to), [p = floats(from)](auto lanes, std::int64_t i) {
    return lanes.load_from(p + i);
  });
}

void widen(const TensorView& from, std::int64_t count, const TensorView& to, ThreadPool& threads) {
  const Stored* source = stored(from);
  float* target = floats(to);
  run_flat(threads, count, [=](auto lanes, std::int64_t i) {
    lanes.store_to(target + i, lanes.load_from(source + i));
  });
}

template <bool kAdd>
void dropout_samples(const DropoutSizes& s, const std::int64_t* sample_ids, const Stored* from,
                     Stored* to, std::int64_t first, std::int64_t last) {
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

void dropout(const DropoutSizes& s, const std::int64_t* sample_ids, const TensorView& from_operand,
             const TensorView& to_operand, bool add, ThreadPool& threads) {
  const Stored* from = stored(from_operand);
  Stored* to = stored(to_operand);
  const auto run = add ? dropout_samples<true> : dropout_samples<false>;
  threads.run(s.n, [&](std::int64_t first, std::int64_t last, int) {
    run(s, sample_ids, from, to, first, last);
  });
}

// Transposes a square of 4 x 4 elements: columns of `from` become rows of `to`.
template <bool kAdd>
ENGINE_INLINE void transpose_square(const Stored* from, std::int64_t from_stride, Stored* to,
                                    std::int64_t to_stride) {
  QuadSquare square;
  for (int r = 0; r < 4; ++r) square.packet[r] = load_quad(from + r * from_stride);
  transpose(square);
  for (int r = 0; r < 4; ++r) {
    Stored* row = to + r * to_stride;
    store_quad(row, kAdd ? load_quad(row) + square.packet[r] : square.packet[r]);
  }
}

// Transposes four rows at a time; the elements outside squares are copied one by one.
template <bool kAdd>
void transpose_samples(const Stored* from, std::int64_t rows, std::int64_t columns, Stored* to,
                       std::int64_t first, std::int64_t last) {
  const std::int64_t square_rows = rows / 4 * 4, square_columns = columns / 4 * 4;
  for (std::int64_t sample = first; sample < last; ++sample) {
    const Stored* source = from + sample * rows * columns;
    Stored* target = to + sample * rows * columns;
    const auto one_by_one = [=](std::int64_t r, std::int64_t start) {
      for (std::int64_t c = start; c < columns; ++c) {
        Stored* place = target + c * rows + r;
        const float value = element(source + r * columns + c);
        store_element(place, kAdd ? element(place) + value : value);
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

void transpose(const TensorView& from_operand, std::int64_t n, std::int64_t rows,
               std::int64_t columns, const TensorView& to_operand, bool add, ThreadPool& threads) {
  const Stored* from = stored(from_operand);
  Stored* to = stored(to_operand);
  const auto run = add ? transpose_samples<true> : transpose_samples<false>;
  threads.run(n, [=](std::int64_t first, std::int64_t last, int) {
    run(from, rows, columns, to, first, last);
  });
}

}  // namespace

const ElementwiseTable elementwise_table{relu_forward, relu_backward, add_forward, copy_or_add,
                                         dropout,      transpose,     narrow,      widen};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
