// The kernel tables of group normalization in float32 on the CPU; group_norm.cc calls the one of
// the chosen instruction set.
#pragma once

#include "engine/core/thread_pool.h"
#include "engine/ops/common/cpu_dispatch.h"
#include "engine/ops/norm/group_norm.h"

namespace engine::ops {

// `scratch` is 64-byte aligned and has scratch_floats() floats. Results do not depend on the number
// of threads.
struct GroupNormTable {
  std::int64_t (*scratch_floats)(std::int64_t n, std::int64_t channels);
  void (*forward)(const GroupNormForward& o, const GroupNormSizes& sizes, ThreadPool& threads,
                  void* scratch);
  void (*backward)(const GroupNormBackward& o, const GroupNormSizes& sizes, ThreadPool& threads,
                   void* scratch);
};

ENGINE_ISA_TABLE(GroupNormTable, group_norm_table)

}  // namespace engine::ops
