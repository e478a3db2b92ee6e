// Asks the CPU for its instructions, and the operating system (XCR0) for the registers it saves.
#include "io/base/machine/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>

#include <cstdint>
#endif

namespace base {

#if defined(__x86_64__)
namespace {

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

// All zero if the CPU does not know this leaf.
Registers leaf(unsigned number, unsigned part) {
  Registers r;
  if (__get_cpuid_count(number, part, &r.a, &r.b, &r.c, &r.d) == 0) return {};
  return r;
}

// REQUIRES: OSXSAVE. The mnemonic needs no compiler option in assembly.
std::uint64_t saved_registers() {
  std::uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32) | low;
}

constexpr bool has_all(std::uint64_t bits, std::uint64_t wanted) {
  return (bits & wanted) == wanted;
}

}  // namespace

CpuFeatures cpu_features() noexcept {
  constexpr unsigned kFma = 1U << 12, kOsxsave = 1U << 27, kAvx = 1U << 28;  // leaf 1, ecx
  constexpr unsigned kAvx2 = 1U << 5;                                        // leaf 7, ebx
  constexpr unsigned kAvx512 = 1U << 16 | 1U << 17 | 1U << 30 | 1U << 31;    // F, DQ, BW, VL
  constexpr unsigned kBf16 = 1U << 5;                                        // leaf 7.1, eax
  constexpr std::uint64_t kYmm = 0x6, kZmm = 0xe6;                           // XCR0

  CpuFeatures found;
  if (!has_all(leaf(1, 0).c, kFma | kOsxsave | kAvx)) return found;
  const std::uint64_t saved = saved_registers();
  const unsigned instructions = leaf(7, 0).b;
  found.avx2 = has_all(saved, kYmm) && has_all(instructions, kAvx2);
  found.avx512 = found.avx2 && has_all(saved, kZmm) && has_all(instructions, kAvx512);
  found.avx512_bf16 = found.avx512 && has_all(leaf(7, 1).a, kBf16);
  return found;
}
#else
CpuFeatures cpu_features() noexcept { return {}; }
#endif

}  // namespace base
