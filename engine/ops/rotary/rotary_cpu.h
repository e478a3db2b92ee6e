// The kernel tables of the rotary position embedding in float32 on the CPU; rotary.cc calls the one
// of the chosen instruction set.
#pragma once

#include "engine/core/thread_pool.h"
#include "engine/ops/common/cpu_dispatch.h"
#include "engine/ops/rotary/rotary_operands.h"

namespace engine::ops {

// `rows` rows of `width` elements, of which row r has the position r % t; half is size / 2.
struct RotarySizes {
  std::int64_t rows, t, heads, half, width;
};

// `table` [t, 2, half]: cosines and sines. Results do not depend on the number of threads.
struct RotaryTable {
  void (*rotate)(const Rotary& o, const RotarySizes& sizes, const float* table,
                 ThreadPool& threads);
};

ENGINE_ISA_TABLE(RotaryTable, rotary_table)

}  // namespace engine::ops
