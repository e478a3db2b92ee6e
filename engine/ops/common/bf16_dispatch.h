// Matrix products in bf16 on the CPU: whether they can be computed, and the tables of their
// kernels, which exist for AVX512_BF16 and for AMX alone.
//
// The sources that multiply are compiled once more for each, as cpu_dispatch.h says, with
// ENGINE_BF16_PAIRS=1: their packing then rounds operands and puts neighbouring terms of a sum
// together, and a step of their tiles adds the products of two (gemm_tiles.h, amx_tiles.h).
#pragma once

#include <string>

#include "engine/ops/common/cpu_dispatch.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// Why this process cannot multiply in bf16 on the CPU, "this CPU has no AVX512_BF16"; "" where it
// can.
std::string missing_bf16_products();

// Whether products on the CPU are to be in bf16. Throws ModelError where that cannot be.
bool in_bf16(Products products);

// What kernels with these products run with: cpu_isa(), but not AMX unless they are in bf16.
CpuIsa isa_of(Products products);

}  // namespace engine::ops

// ENGINE_BF16_TABLE(Type, name), inside namespace engine::ops: declares the table, and
// bf16_table_of_name(), which returns it. REQUIRES: missing_bf16_products() is "".
#if defined(ENGINE_ISA_NAMESPACE)
#define ENGINE_BF16_TABLE(Type, name) \
  namespace ENGINE_ISA_NAMESPACE {    \
  extern const Type name;             \
  }
#elif ENGINE_X86_ISAS && ENGINE_HAS_AVX512
#define ENGINE_BF16_TABLE(Type, name)                                                       \
  namespace isa_avx512bf16 {                                                                \
  extern const Type name;                                                                   \
  }                                                                                         \
  namespace isa_amx {                                                                       \
  extern const Type name;                                                                   \
  }                                                                                         \
  inline const Type& bf16_table_of_##name() {                                               \
    return ::engine::ops::cpu_isa() == CpuIsa::kAmx ? isa_amx::name : isa_avx512bf16::name; \
  }
#else
namespace engine::ops {
[[noreturn]] void no_bf16_products();
}
#define ENGINE_BF16_TABLE(Type, name) \
  inline const Type& bf16_table_of_##name() { no_bf16_products(); }
#endif
