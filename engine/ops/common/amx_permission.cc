// Queries the CPU for AMX and requests it from the operating system.
#include "engine/ops/common/amx_permission.h"

#include "engine/ops/common/cpu_dispatch.h"

#if ENGINE_X86_ISAS && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace engine::ops {
namespace {

bool ask_for_amx() {
#if ENGINE_X86_ISAS && defined(__linux__)
  constexpr unsigned kSystemSaves = 1u << 27;                   // leaf 1, ecx: OSXSAVE
  constexpr unsigned kBf16 = 1u << 22, kTiles = 1u << 24;       // leaf 7, edx
  constexpr unsigned kShapes = 1u << 17, kContents = 1u << 18;  // XCR0
  constexpr long kAskForState = 0x1023, kStateOfContents = 18;  // ARCH_REQ_XCOMP_PERM
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kSystemSaves) == 0) return false;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & kBf16) == 0 || (d & kTiles) == 0) return false;
  asm volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
  if ((a & kShapes) == 0 || (a & kContents) == 0) return false;
  return syscall(SYS_arch_prctl, kAskForState, kStateOfContents) == 0;
#else
  return false;
#endif
}

}  // namespace

bool amx_granted() {
  static const bool granted = ask_for_amx();
  return granted;
}

}  // namespace engine::ops
