// Implements embeddings in plain loops, as the reference for tests. Contract: embedding.h.
#pragma once

#include <cstdint>

#include "engine/ops/embedding/embedding.h"

namespace engine::ops::reference {

template <class T>
void embedding_forward(const EmbeddingForward& o) {
  const EmbeddingSizes s = embedding_sizes(o.tokens, o.table);
  const auto* tokens = o.tokens.as<std::int32_t>();
  const T* table = o.table.as<T>();
  T* y = o.y.as<T>();
  for (std::int64_t p = 0; p < s.places; ++p)
    for (std::int64_t c = 0; c < s.width; ++c) y[p * s.width + c] = table[tokens[p] * s.width + c];
}

template <class T>
void embedding_backward(const EmbeddingBackward& o) {
  const EmbeddingSizes s = embedding_sizes(o.tokens, o.dtable);
  const auto* tokens = o.tokens.as<std::int32_t>();
  const T* dy = o.dy.as<T>();
  T* dtable = o.dtable.as<T>();
  for (std::int64_t i = 0; i < s.vocabulary * s.width && o.write == Write::kOverwrite; ++i)
    dtable[i] = 0;
  for (std::int64_t p = 0; p < s.places; ++p)
    for (std::int64_t c = 0; c < s.width; ++c)
      dtable[tokens[p] * s.width + c] += dy[p * s.width + c];
}

// `item` is t * width, the number of elements of a sample.
template <class T>
void add_positions_forward(const T* x, std::int64_t n, std::int64_t item, const T* positions,
                           T* y) {
  for (std::int64_t s = 0; s < n; ++s)
    for (std::int64_t i = 0; i < item; ++i) y[s * item + i] = x[s * item + i] + positions[i];
}

// `elements` is the size of the table of positions, of which the first `item` are used.
template <class T>
void add_positions_backward(const T* dy, std::int64_t n, std::int64_t item, std::int64_t elements,
                            T* dpositions, Write write) {
  for (std::int64_t i = 0; i < elements; ++i) {
    T sum = 0;
    for (std::int64_t s = 0; s < n && i < item; ++s) sum += dy[s * item + i];
    dpositions[i] = write == Write::kAdd ? dpositions[i] + sum : sum;
  }
}

}  // namespace engine::ops::reference
