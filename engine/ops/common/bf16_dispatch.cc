// Queries the CPU for AVX512_BF16.
#include "engine/ops/common/bf16_dispatch.h"

#include "engine/core/error.h"
#include "io/base/machine/cpu_features.h"

namespace engine::ops {
namespace {

bool cpu_has_it() {
#if ENGINE_X86_ISAS && ENGINE_HAS_BF16
  static const bool has = best_cpu_isa() >= CpuIsa::kAvx512 && base::cpu_features().avx512_bf16;
  return has;
#else
  return false;
#endif
}

}  // namespace

std::string missing_bf16_products() {
#if !ENGINE_X86_ISAS
  return "only x86-64 CPUs with AVX512_BF16 have kernels for it";
#elif !ENGINE_HAS_BF16
  return "this build has no kernels for AVX512_BF16 (cmake -DENGINE_CPU_KERNELS=all builds them)";
#endif
  if (!cpu_has_it()) return "this CPU has no AVX512_BF16";
  if (cpu_isa() < CpuIsa::kAvx512)
    return "ENGINE_ISA=" + std::string(to_string(cpu_isa())) + " leaves out AVX512_BF16";
  return "";
}

bool in_bf16(Products products) {
  if (products != Products::kBF16) return false;
  if (cpu_has_it() && cpu_isa() >= CpuIsa::kAvx512) return true;
  throw ModelError("products in bf16 on the CPU: " + missing_bf16_products());
}

CpuIsa isa_of(Products products) {
  const CpuIsa isa = cpu_isa();
  return isa == CpuIsa::kAmx && products != Products::kBF16 ? CpuIsa::kAvx512 : isa;
}

#if !ENGINE_X86_ISAS || !ENGINE_HAS_BF16
void no_bf16_products() { throw ModelError("products in bf16: " + missing_bf16_products()); }
#endif

}  // namespace engine::ops
