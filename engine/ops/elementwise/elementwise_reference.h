// Implements the elementwise kernels in plain loops on one thread, as the reference for tests.
// Contract: elementwise.h.
#pragma once

#include <cstdint>
#include <span>

#include "engine/core/random.h"
#include "engine/ops/elementwise/elementwise.h"

namespace engine::ops::reference {

template <class T>
void write_one(T& to, T value, Write write) {
  to = write == Write::kAdd ? to + value : value;
}

// NaN passes, as in PyTorch.
template <class T>
void relu_forward(const T* x, std::int64_t count, T* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] < 0 ? T{0} : x[i];
}

template <class T>
void relu_backward(const T* y, const T* dy, std::int64_t count, T* dx, Write write) {
  for (std::int64_t i = 0; i < count; ++i) write_one(dx[i], y[i] > 0 ? dy[i] : T{0}, write);
}

template <class T>
void add_forward(const T* a, const T* b, bool relu, std::int64_t count, T* y) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T sum = a[i] + b[i];
    y[i] = relu && sum < 0 ? T{0} : sum;
  }
}

template <class T>
void copy_or_add(const T* from, std::int64_t count, T* to, Write write) {
  for (std::int64_t i = 0; i < count; ++i) write_one(to[i], from[i], write);
}

// to = from * keep / (1 - rate), with `count` elements per sample.
template <class T>
void dropout(const Dropout& o, std::int64_t count) {
  const T* from = o.from.as<T>();
  T* to = o.to.as<T>();
  const T factor = o.rate < 1 ? static_cast<T>(1 / (1 - o.rate)) : T{0};
  const std::uint64_t blocks = static_cast<std::uint64_t>(count + 3) / 4;
  for (std::size_t s = 0; s < o.sample_ids.size(); ++s) {
    for (std::int64_t e = 0; e < count; ++e) {
      const std::uint64_t low =
          static_cast<std::uint64_t>(o.sample_ids[s]) * blocks + static_cast<std::uint64_t>(e) / 4;
      const std::uint32_t word = philox(o.key, o.epoch, low)[static_cast<std::size_t>(e % 4)];
      const T keep = uniform_float(word) >= o.rate ? factor : T{0};
      const std::int64_t i = static_cast<std::int64_t>(s) * count + e;
      write_one(to[i], from[i] * keep, o.write);
    }
  }
}

// Writes the transpose [columns, rows] of one sample, which is a matrix [rows, columns].
template <class T>
void transpose_samples(const T* from, std::int64_t n, std::int64_t rows, std::int64_t columns,
                       T* to, Write write) {
  for (std::int64_t s = 0; s < n; ++s) {
    const std::int64_t base = s * rows * columns;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c)
        write_one(to[base + c * rows + r], from[base + r * columns + c], write);
    }
  }
}

}  // namespace engine::ops::reference
