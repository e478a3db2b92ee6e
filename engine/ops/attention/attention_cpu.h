// Causal self-attention in float32 on the CPU: what attention.cc calls for the chosen instruction
// set.
#pragma once

#include <cstdint>

#include "engine/core/thread_pool.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/common/bf16_dispatch.h"

namespace engine::ops {

struct AttentionSizes {
  std::int64_t n, t, heads, size;  // size: of a head
  std::uint64_t key,
      epoch;  // dropout: a probability is kept when its word's upper 24 bits reach `threshold`
  std::uint32_t threshold;
  float factor;                    // of what is kept
  const std::int64_t* sample_ids;  // nullptr: no dropout
};

// `scratch`: 64-byte aligned,
// scratch_floats() floats. Results do not depend on the number of threads.
struct AttentionTable {
  std::int64_t (*scratch_floats)(std::int64_t t, std::int64_t size, int threads);
  void (*forward)(const CausalAttentionForward& o, const AttentionSizes& sizes, ThreadPool& threads,
                  float* scratch);
  void (*backward)(const CausalAttentionBackward& o, const AttentionSizes& sizes,
                   ThreadPool& threads, float* scratch);
};

ENGINE_ISA_TABLE(AttentionTable, attention_table)

// Operands of all products are rounded to bf16; sums, the softmax and what is stored are f32.
ENGINE_BF16_TABLE(AttentionTable, attention_table)

}  // namespace engine::ops
