// Chooses the instruction set at run time.
#include "engine/ops/common/cpu_dispatch.h"

#include <atomic>
#include <cstdlib>
#include <string>

#include "engine/core/error.h"
#include "engine/ops/common/amx_permission.h"
#include "io/base/machine/cpu_features.h"

namespace engine::ops {
namespace {

constexpr int kUnset = -1;
std::atomic<int> chosen{kUnset};

CpuIsa from_environment() {
  const char* text = std::getenv("ENGINE_ISA");
  return text == nullptr || *text == '\0' ? best_cpu_isa() : parse_cpu_isa(text);
}

constexpr bool is_built(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAmx:
      return ENGINE_HAS_AMX;
    case CpuIsa::kAvx512:
      return ENGINE_HAS_AVX512;
    case CpuIsa::kAvx2:
      return ENGINE_HAS_AVX2;
    default:
      return ENGINE_HAS_BASELINE;
  }
}

constexpr CpuIsa min_built() {
  if (ENGINE_HAS_BASELINE) return CpuIsa::kBaseline;
  return ENGINE_HAS_AVX2 ? CpuIsa::kAvx2 : CpuIsa::kAvx512;
}

CpuIsa best_of_cpu() {
#if ENGINE_X86_ISAS
  const base::CpuFeatures cpu = base::cpu_features();
  if (!cpu.avx2) return CpuIsa::kBaseline;
  if (!cpu.avx512) return CpuIsa::kAvx2;
  const bool tiles = cpu.avx512_bf16 && amx_granted();
  return tiles ? CpuIsa::kAmx : CpuIsa::kAvx512;
#else
  return CpuIsa::kBaseline;
#endif
}

void check_supported(CpuIsa isa) {
  if (is_supported(isa)) return;
  throw ModelError("instruction set " + std::string(to_string(isa)) +
                   " asked for (ENGINE_ISA), but this CPU, its system and this build have only " +
                   std::string(to_string(best_cpu_isa())));
}

}  // namespace

std::string_view to_string(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kAvx512:
      return "avx512";
    case CpuIsa::kAmx:
      return "amx";
    default:
      return "baseline";
  }
}

CpuIsa best_cpu_isa() {
  static const CpuIsa best = [] {
    const CpuIsa of_cpu = best_of_cpu();
    for (const CpuIsa isa : {CpuIsa::kAmx, CpuIsa::kAvx512, CpuIsa::kAvx2, CpuIsa::kBaseline})
      if (isa <= of_cpu && is_built(isa)) return isa;
    throw ModelError("this program has CPU kernels for " + std::string(to_string(min_built())) +
                     " and above, and this CPU has " + std::string(to_string(of_cpu)) +
                     ": build it with -DENGINE_CPU_KERNELS=all");
  }();
  return best;
}

bool is_supported(CpuIsa isa) { return isa <= best_cpu_isa() && is_built(isa); }

CpuIsa cpu_isa() {
  int isa = chosen.load(std::memory_order_relaxed);
  if (isa == kUnset) {
    isa = static_cast<int>(from_environment());
    chosen.store(isa, std::memory_order_relaxed);
  }
  return static_cast<CpuIsa>(isa);
}

void set_cpu_isa(CpuIsa isa) {
  check_supported(isa);
  chosen.store(static_cast<int>(isa), std::memory_order_relaxed);
}

CpuIsa parse_cpu_isa(std::string_view text) {
  for (const CpuIsa isa : {CpuIsa::kBaseline, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAmx}) {
    if (text == to_string(isa)) {
      check_supported(isa);
      return isa;
    }
  }
  throw ModelError("unknown instruction set '" + std::string(text) +
                   "' (ENGINE_ISA): use baseline, avx2, avx512 or amx");
}

}  // namespace engine::ops
