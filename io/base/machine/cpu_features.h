// Detects what this CPU has and its operating system supports, by the CPUID instruction.
#pragma once

namespace base {

// All false on other architectures than x86-64.
struct CpuFeatures {
  bool avx2 = false;    // with FMA
  bool avx512 = false;  // F, VL, BW and DQ
  bool avx512_bf16 = false;
};

// Not the compiler's __builtin_cpu_supports: the runtime library of some compilers lacks it.
CpuFeatures cpu_features() noexcept;

}  // namespace base
