// Embedding and learned positions on a CUDA device. embedding.h describes and embedding.cc checks
// the operands. Bound by bytes.
#pragma once

#include "engine/ops/embedding/embedding.h"

namespace engine::ops::cuda {

// Returns the scratch size of backward.
std::size_t embedding_scratch_bytes(std::int64_t places, std::int64_t vocabulary);

// Ids outside [0, vocabulary) are reported to context.fault and count as 0.
void embedding_forward(KernelContext& context, const EmbeddingForward& o);
void embedding_backward(KernelContext& context, const EmbeddingBackward& o);

void add_positions_forward(KernelContext& context, TensorView x, TensorView positions,
                           TensorView y);
void add_positions_backward(KernelContext& context, TensorView dy, TensorView dpositions,
                            Write write);

}  // namespace engine::ops::cuda
