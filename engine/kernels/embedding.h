// Embedding: rows of a table chosen by token ids, and learned positions added to them. Numbers as PyTorch's Embedding.
//
// tokens [n, t] of i32; table [vocabulary, width]; y, dy [n, t, width]; positions [context, width], t <= context.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/kernels/kernel_context.h"

namespace engine::kernels {

// y[s, i] = table[tokens[s, i]]. Throws InputError, before anything is written, for an id outside [0, vocabulary), naming its
// sample and place.
void embedding_forward(KernelContext& context, TensorView tokens, TensorView table, TensorView y);

// dtable[v] = sum of dy over the places of token v, in their order: the bits do not depend on the number of threads.
// Rows of tokens that do not occur are written as 0 (or left alone with Write::kAdd). Ids are trusted: forward checked them.
void embedding_backward(KernelContext& context, TensorView tokens, TensorView dy, TensorView dtable, Write write);

// y[s, i] = x[s, i] + positions[i]. y may be x.
void add_positions_forward(KernelContext& context, TensorView x, TensorView positions, TensorView y);

// dpositions[i] = sum over the samples of dy[s, i], in their order; 0 for positions that are not used. The gradient of x is dy.
void add_positions_backward(KernelContext& context, TensorView dy, TensorView dpositions, Write write);

}  // namespace engine::kernels
