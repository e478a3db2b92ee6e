// The kernel table of attention_extend.h in float32; attention_extend.cc calls the one of the
// chosen instruction set.
#pragma once

#include <cstdint>

#include "engine/core/thread_pool.h"
#include "engine/ops/common/cpu_dispatch.h"

namespace engine::ops {

// One head of one text. Rows of q and y have distances between them; those of keys and values are
// dense.
template <class T>
struct ExtendedHead {
  std::int64_t t, earlier, size;
  const T *q, *k, *v;  // of the call's positions
  std::int64_t qkv_stride;
  T *keys, *values;  // [earlier + t, size]
  T* y;
  std::int64_t y_stride;
};

struct AttentionExtendTable {
  void (*extend)(const ExtendedHead<float>& head);
};

ENGINE_ISA_TABLE(AttentionExtendTable, attention_extend_table)

}  // namespace engine::ops
