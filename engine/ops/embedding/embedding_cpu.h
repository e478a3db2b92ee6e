// The kernel tables of embeddings in float32 on the CPU; embedding.cc calls the one of the chosen
// instruction set.
#pragma once

#include <cstdint>

#include "engine/core/thread_pool.h"
#include "engine/ops/common/cpu_dispatch.h"
#include "engine/ops/embedding/embedding.h"

namespace engine::ops {

// `item` is t * width. Results do not depend on the number of threads.
struct EmbeddingTable {
  void (*forward)(const EmbeddingForward& o, const EmbeddingSizes& sizes, ThreadPool& threads);
  void (*backward)(const EmbeddingBackward& o, const EmbeddingSizes& sizes, ThreadPool& threads);
  void (*add_positions_forward)(const float* x, std::int64_t n, std::int64_t item,
                                const float* positions, float* y, ThreadPool& threads);
  void (*add_positions_backward)(const float* dy, std::int64_t n, std::int64_t item,
                                 std::int64_t elements, float* dpositions, bool add,
                                 ThreadPool& threads);
};

ENGINE_ISA_TABLE(EmbeddingTable, embedding_table)

}  // namespace engine::ops
