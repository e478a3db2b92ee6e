// What an embedding means: plain loops. Contract: embedding.h.
#pragma once

#include <cstdint>

#include "engine/ops/common/kernel_context.h"

namespace engine::ops::reference {

// `places`: n * t.
template <class T>
void embedding_forward(const std::int32_t* tokens, std::int64_t places, std::int64_t width,
                       const T* table, T* y) {
  for (std::int64_t p = 0; p < places; ++p)
    for (std::int64_t c = 0; c < width; ++c) y[p * width + c] = table[tokens[p] * width + c];
}

// Rows [first, last) of the table.
template <class T>
void embedding_backward(const std::int32_t* tokens, std::int64_t places, std::int64_t width,
                        const T* dy, std::int64_t first, std::int64_t last, T* dtable,
                        Write write) {
  if (write == Write::kOverwrite)
    for (std::int64_t i = first * width; i < last * width; ++i) dtable[i] = 0;
  for (std::int64_t p = 0; p < places; ++p) {
    if (tokens[p] < first || tokens[p] >= last) continue;
    for (std::int64_t c = 0; c < width; ++c) dtable[tokens[p] * width + c] += dy[p * width + c];
  }
}

// `item`: t * width, elements of a sample.
template <class T>
void add_positions_forward(const T* x, std::int64_t n, std::int64_t item, const T* positions,
                           T* y) {
  for (std::int64_t s = 0; s < n; ++s)
    for (std::int64_t i = 0; i < item; ++i) y[s * item + i] = x[s * item + i] + positions[i];
}

// Elements [first, last) of the table of positions.
template <class T>
void add_positions_backward(const T* dy, std::int64_t n, std::int64_t item, std::int64_t first,
                            std::int64_t last, T* dpositions, Write write) {
  for (std::int64_t i = first; i < last; ++i) {
    T sum = 0;
    for (std::int64_t s = 0; s < n && i < item; ++s) sum += dy[s * item + i];
    dpositions[i] = write == Write::kAdd ? dpositions[i] + sum : sum;
  }
}

}  // namespace engine::ops::reference
