// Embedding: table rows selected by token ids, and learned positions added to them. The results
// equal those of PyTorch's Embedding.
//
// tokens [n, t] of i32; table [vocabulary, width]; y, dy [n, t, width]; positions [context, width],
// t <= context. On a CUDA device dtable and dpositions are f32.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// Returns the scratch size of embedding_backward() for at most n * t places.
std::size_t embedding_scratch_bytes(std::int64_t places, std::int64_t vocabulary,
                                    Device::Kind device);

// y[s, i] = table[tokens[s, i]]. For an id outside [0, vocabulary), throws InputError with its
// sample and position before anything is written. On a CUDA device such an id is reported to
// context.fault instead, and counts as 0, here and in backward.
struct EmbeddingForward {
  TensorView tokens, table, y;
};
void embedding_forward(KernelContext& context, const EmbeddingForward& o);

// dtable[v] = sum of dy over the places of token v, in order: the bits do not depend on the number
// of threads. Rows of tokens that do not occur are written as 0 (or left unchanged with
// Write::kAdd). Ids are not checked again: forward has checked them.
struct EmbeddingBackward {
  TensorView tokens, dy, dtable;
  Write write = Write::kOverwrite;
};
void embedding_backward(KernelContext& context, const EmbeddingBackward& o);

// y[s, i] = x[s, i] + positions[i]. y may be x.
void add_positions_forward(KernelContext& context, TensorView x, TensorView positions,
                           TensorView y);

// dpositions[i] = sum over the samples of dy[s, i], in order; 0 for positions that are not used.
// The gradient of x is dy.
void add_positions_backward(KernelContext& context, TensorView dy, TensorView dpositions,
                            Write write);

// Extents of the operands; `places` is n * t. REQUIRES: the operands are checked.
struct EmbeddingSizes {
  std::int64_t places, vocabulary, width;
};
inline EmbeddingSizes embedding_sizes(const TensorView& tokens, const TensorView& table) {
  return {tokens.count(), table.shape[0], table.shape[1]};
}

}  // namespace engine::ops
