// bf16 on the CPU: determines if it is available, and selects the kernel tables, which exist only
// for AVX512_BF16 and AMX.
//
// The sources that multiply are compiled once more for each, as cpu_dispatch.h describes, with
// ENGINE_BF16_PAIRS=1: their packing then rounds operands and combines adjacent terms of a sum into
// pairs, and a step of their tiles adds two products (gemm_tiles.h, amx_tiles.h).
//
// These sources and most others for image models are compiled once more with ENGINE_BF16_STORED=1,
// for activations and their gradients stored in bf16 (stored.h). Parameters, their gradients,
// statistics and losses remain f32.
#pragma once

#include <string>

#include "engine/core/dtype.h"
#include "engine/ops/common/cpu_dispatch.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// Returns why this process cannot multiply in bf16 on the CPU, e.g. "this CPU has no AVX512_BF16";
// "" if it can.
std::string missing_bf16_products();

// Returns true if products on the CPU use bf16. Throws ModelError if bf16 is not available.
bool in_bf16(Products products);

// Returns the instruction set for kernels with these products: cpu_isa(), but AMX only for bf16.
CpuIsa isa_of(Products products);

}  // namespace engine::ops

// ENGINE_BF16_TABLE(Type, name), used inside namespace engine::ops, declares the kernel table with
// products of rounded floats, and bf16_table_of_name(), which returns it. ENGINE_STORED_TABLE
// declares the table for bf16 storage, and stored_table_of_name(). ENGINE_STORED_PRODUCTS does the
// same if AMX has its own table. REQUIRES: missing_bf16_products() is "".
#if defined(ENGINE_ISA_NAMESPACE)
#define ENGINE_STORED_TABLE(Type, name)
#define ENGINE_STORED_PRODUCTS(Type, name)
#define ENGINE_BF16_TABLE(Type, name) \
  namespace ENGINE_ISA_NAMESPACE {    \
  extern const Type name;             \
  }
#elif ENGINE_HAS_BF16
#if ENGINE_HAS_AMX
#define ENGINE_IN_AMX(...) __VA_ARGS__
#else
#define ENGINE_IN_AMX(...)
#endif
#define ENGINE_BF16_TABLE(Type, name)                                                  \
  ENGINE_TABLE_OF(isa_avx512bf16, Type, name)                                          \
  ENGINE_IN_AMX(ENGINE_TABLE_OF(isa_amx, Type, name))                                  \
  inline const Type& bf16_table_of_##name() {                                          \
    ENGINE_IN_AMX(if (::engine::ops::cpu_isa() == CpuIsa::kAmx) return isa_amx::name;) \
    return isa_avx512bf16::name;                                                       \
  }
#define ENGINE_STORED_TABLE(Type, name)   \
  ENGINE_TABLE_OF(isa_stored, Type, name) \
  inline const Type& stored_table_of_##name() { return isa_stored::name; }
#define ENGINE_STORED_PRODUCTS(Type, name)                                                   \
  ENGINE_TABLE_OF(isa_storedbf16, Type, name)                                                \
  ENGINE_IN_AMX(ENGINE_TABLE_OF(isa_storedamx, Type, name))                                  \
  inline const Type& stored_table_of_##name() {                                              \
    ENGINE_IN_AMX(if (::engine::ops::cpu_isa() == CpuIsa::kAmx) return isa_storedamx::name;) \
    return isa_storedbf16::name;                                                             \
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

// Selects the table for activations of this dtype. REQUIRES: it is kF32 or, if
// missing_bf16_products() is "", kBF16.
#define ENGINE_TABLE_FOR(dtype, name)                                \
  ((dtype) == DType::kBF16 ? ::engine::ops::stored_table_of_##name() \
                           : ::engine::ops::isa_table_of_##name())
