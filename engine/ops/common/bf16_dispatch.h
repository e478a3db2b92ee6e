// bf16 on the CPU: whether it can be computed with, and the tables of its kernels, which exist for
// AVX512_BF16 and for AMX alone.
//
// The sources that multiply are compiled once more for each, as cpu_dispatch.h says, with
// ENGINE_BF16_PAIRS=1: their packing then rounds operands and puts neighboring terms of a sum
// together, and a step of their tiles adds the products of two (gemm_tiles.h, amx_tiles.h).
//
// These and the sources of most else that image models need are compiled once more with
// ENGINE_BF16_STORED=1, for activations and gradients of them that are stored in bf16 (stored.h).
// Parameters, their gradients, statistics and losses are f32 there too.
#pragma once

#include <string>

#include "engine/core/dtype.h"
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

// ENGINE_BF16_TABLE(Type, name), inside namespace engine::ops: declares the table of products of
// rounded floats, and bf16_table_of_name(), which returns it. ENGINE_STORED_TABLE: the table for
// what is stored in bf16, and stored_table_of_name(). ENGINE_STORED_PRODUCTS: the same where AMX
// has one of its own. REQUIRES: missing_bf16_products() is "".
#if defined(ENGINE_ISA_NAMESPACE)
#define ENGINE_STORED_TABLE(Type, name)
#define ENGINE_STORED_PRODUCTS(Type, name)
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
#define ENGINE_STORED_TABLE(Type, name) \
  namespace isa_stored {                \
  extern const Type name;               \
  }                                     \
  inline const Type& stored_table_of_##name() { return isa_stored::name; }
#define ENGINE_STORED_PRODUCTS(Type, name)                                                        \
  namespace isa_storedbf16 {                                                                      \
  extern const Type name;                                                                         \
  }                                                                                               \
  namespace isa_storedamx {                                                                       \
  extern const Type name;                                                                         \
  }                                                                                               \
  inline const Type& stored_table_of_##name() {                                                   \
    return ::engine::ops::cpu_isa() == CpuIsa::kAmx ? isa_storedamx::name : isa_storedbf16::name; \
  }
#else
namespace engine::ops {
[[noreturn]] void no_bf16_products();
}
#define ENGINE_BF16_TABLE(Type, name) \
  inline const Type& bf16_table_of_##name() { no_bf16_products(); }
#define ENGINE_STORED_TABLE(Type, name) \
  inline const Type& stored_table_of_##name() { no_bf16_products(); }
#define ENGINE_STORED_PRODUCTS(Type, name) ENGINE_STORED_TABLE(Type, name)
#endif

// The table for activations of this type. REQUIRES: it is kF32 or, where missing_bf16_products() is
// "", kBF16.
#define ENGINE_TABLE_FOR(dtype, name)                                \
  ((dtype) == DType::kBF16 ? ::engine::ops::stored_table_of_##name() \
                           : ::engine::ops::isa_table_of_##name())
