// The operands of the attention of next positions; attention_extend.h describes them.
#pragma once

#include <cstdint>
#include <span>

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

struct CausalAttentionExtend {
  TensorView qkv;
  std::int64_t heads, kv_heads = heads;   // kv_heads divides heads
  std::span<const std::int64_t> earlier;  // [n]
  TensorView kept;
  TensorView y;
};

}  // namespace engine::ops
