// Runs multiply-adds on the widest registers of the processor.
#include <time.h>

#include "engine/ops/common/bf16_dispatch.h"
#include "tools/bench/kernels/kernel_bench.h"

namespace tools {

double fma_rate([[maybe_unused]] bool cpu_time, [[maybe_unused]] engine::Products products) {
#if ENGINE_X86_ISAS
  const auto now = [cpu_time] {
    timespec time{};
    clock_gettime(cpu_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const engine::ops::CpuIsa isa = engine::ops::cpu_isa();
  if (isa == engine::ops::CpuIsa::kBaseline) return 0;
  if (engine::ops::isa_of(products) == engine::ops::CpuIsa::kAmx)
    return 0;  // tiles have no loop here
  const long steps = 10'000'000;
  const double start = now();
#define ENGINE_CHAIN(r, i) "vfmadd231ps %%" r "mm14,%%" r "mm15,%%" r "mm" i "\n"
#define ENGINE_CHAINS(r)                                                                       \
  "mov %0,%%rcx\n1: " ENGINE_CHAIN(r, "0") ENGINE_CHAIN(r, "1") ENGINE_CHAIN(r, "2")           \
      ENGINE_CHAIN(r, "3") ENGINE_CHAIN(r, "4") ENGINE_CHAIN(r, "5") ENGINE_CHAIN(r, "6")      \
          ENGINE_CHAIN(r, "7") ENGINE_CHAIN(r, "8") ENGINE_CHAIN(r, "9") ENGINE_CHAIN(r, "10") \
              ENGINE_CHAIN(r, "11") "dec %%rcx\njnz 1b\nvzeroupper\n"
#define ENGINE_PAIR_CHAIN(i) "vdpbf16ps %%zmm14,%%zmm15,%%zmm" i "\n"
  // Run twelve independent chains.
  if (engine::ops::in_bf16(products)) {
    asm volatile("mov %0,%%rcx\n1: " ENGINE_PAIR_CHAIN("0") ENGINE_PAIR_CHAIN(
                     "1") ENGINE_PAIR_CHAIN("2") ENGINE_PAIR_CHAIN("3") ENGINE_PAIR_CHAIN("4")
                     ENGINE_PAIR_CHAIN("5") ENGINE_PAIR_CHAIN("6") ENGINE_PAIR_CHAIN("7")
                         ENGINE_PAIR_CHAIN("8") ENGINE_PAIR_CHAIN("9") ENGINE_PAIR_CHAIN("10")
                             ENGINE_PAIR_CHAIN("11") "dec %%rcx\njnz 1b\nvzeroupper\n" ::"r"(steps)
                 : "rcx", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                   "xmm9", "xmm10", "xmm11", "cc");
    return static_cast<double>(steps) * 12 * 64 / (now() - start);
  }
  if (isa >= engine::ops::CpuIsa::kAvx512) {
    asm volatile(ENGINE_CHAINS("z")::"r"(steps)
                 : "rcx", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                   "xmm9", "xmm10", "xmm11", "cc");
    return static_cast<double>(steps) * 12 * 32 / (now() - start);
  }
  asm volatile(ENGINE_CHAINS("y")::"r"(steps)
               : "rcx", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                 "xmm9", "xmm10", "xmm11", "cc");
  return static_cast<double>(steps) * 12 * 16 / (now() - start);
#else
  return 0;
#endif
}

}  // namespace tools
