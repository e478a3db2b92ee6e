// The kernel tables of self-attention in float32 on the CPU; attention.cc calls the one of
// the chosen instruction set.
#pragma once

#include <cstdint>

#include "engine/core/thread_pool.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/common/bf16_dispatch.h"

namespace engine::ops {

struct AttentionSizes {
  std::int64_t n, t, heads, kv_heads, size;  // size is the head size
  std::int64_t ahead;  // the number of keys after its own that a query may see: 0 if causal, else t
  std::uint64_t key,
      epoch;  // dropout: a probability is kept if its word's upper 24 bits reach `threshold`
  std::uint32_t threshold;
  float factor;                    // scales the kept probabilities
  const std::int64_t* sample_ids;  // nullptr: no dropout
};

// `scratch` is 64-byte aligned and has scratch_floats() floats. Results do not depend on the number
// of threads.
struct AttentionTable {
  std::int64_t (*scratch_floats)(std::int64_t t, std::int64_t size, int threads);
  void (*forward)(const AttentionForward& o, const AttentionSizes& sizes, ThreadPool& threads,
                  float* scratch);
  void (*backward)(const AttentionBackward& o, const AttentionSizes& sizes, ThreadPool& threads,
                   float* scratch);
};

ENGINE_ISA_TABLE(AttentionTable, attention_table)

// The operands of all products are rounded to bf16; sums, the softmax and stored values are f32.
ENGINE_BF16_TABLE(AttentionTable, attention_table)

}  // namespace engine::ops
