// Selects the instruction set of the fast CPU kernels, once at run time.
//
// Structure of a fast kernel: `x_cpu.cc` is one source, compiled once per instruction set
// (CMakeLists.txt, kernel_isa_sources) inside `namespace engine::ops::ENGINE_ISA_NAMESPACE`, and
// ends in one constant table of function pointers. `x_cpu.h` declares the table for every
// instruction set with ENGINE_ISA_TABLE; x.cc calls isa_table_of_x().function(...).
//
// The one-definition rule: the linker must never merge code compiled for AVX-512 with the same
// inline function compiled for plain x86-64. So these sources take and pass only pointers, numbers
// and plain structs; they use no std:: function, no inline function of other headers (TensorView,
// Shape, align_up ...) and no template outside their own namespace. ThreadPool::run with a lambda
// is safe: the lambda's type belongs to the namespace. Eigen is safe as well: its namespace is
// renamed per instruction set. tests/engine/ops checks the object files for weak symbols that
// violate this rule.
#pragma once

#include <cstdint>
#include <string_view>

#if defined(__x86_64__) || defined(_M_X64)
#define ENGINE_X86_ISAS 1
#else
#define ENGINE_X86_ISAS 0
#endif

namespace engine::ops {

// Ordered: each one includes the ones before it.
enum class CpuIsa : std::uint8_t {
  kBaseline,  // common to all CPUs of the architecture: SSE2 on x86-64, NEON on aarch64
  kAvx2,      // AVX2 and FMA
  kAvx512,    // AVX-512 F, VL, BW, DQ
  kAmx,       // AMX's bf16 tiles and AVX512_BF16 for products in bf16; otherwise as AVX-512
};

std::string_view to_string(CpuIsa isa);  // "baseline", "avx2", "avx512", "amx"

// The best that this CPU, its operating system and this build support. Throws ModelError if there
// is none: a build may leave out those that its own machine does not use (ENGINE_CPU_KERNELS).
CpuIsa best_cpu_isa();

// Whether this CPU, its operating system and this build support it. A build may leave out one that
// is below the best.
bool is_supported(CpuIsa isa);

// The instruction set of the kernels: best_cpu_isa(), or the one in the environment variable
// ENGINE_ISA. It is read once, at the first call. Throws ModelError if ENGINE_ISA is unknown or not
// supported by this CPU.
CpuIsa cpu_isa();

// Replaces the choice, for tests and benchmarks. Throws ModelError if this CPU does not support it.
// Must not be called while kernels run.
void set_cpu_isa(CpuIsa isa);

// Returns the instruction set named `text`. Throws ModelError with the known names, or if this CPU
// does not support it.
CpuIsa parse_cpu_isa(std::string_view text);

}  // namespace engine::ops

// ENGINE_ISA_TABLE(Type, name), used inside namespace engine::ops, declares `extern const Type
// name` in the namespace of each instruction set, and isa_table_of_name(), which returns the one to
// use. In a source that is compiled per instruction set it declares only that set's table.
#if defined(ENGINE_ISA_NAMESPACE)
#define ENGINE_ISA_TABLE(Type, name) \
  namespace ENGINE_ISA_NAMESPACE {   \
  extern const Type name;            \
  }
#else
#ifndef ENGINE_HAS_AVX512
#error "link engine_ops: every table must know the same instruction sets"
#endif
// ENGINE_IN_X(code) is the code if the build has kernels for instruction set X, else nothing.
#if ENGINE_HAS_BASELINE
#define ENGINE_IN_BASELINE(...) __VA_ARGS__
#else
#define ENGINE_IN_BASELINE(...)
#endif
#if ENGINE_HAS_AVX2
#define ENGINE_IN_AVX2(...) __VA_ARGS__
#else
#define ENGINE_IN_AVX2(...)
#endif
#if ENGINE_HAS_AVX512
#define ENGINE_IN_AVX512(...) __VA_ARGS__
#else
#define ENGINE_IN_AVX512(...)
#endif
#define ENGINE_TABLE_OF(isa, Type, name) \
  namespace isa {                        \
  extern const Type name;                \
  }
#define ENGINE_ISA_TABLE(Type, name)                                             \
  ENGINE_IN_BASELINE(ENGINE_TABLE_OF(isa_baseline, Type, name))                  \
  ENGINE_IN_AVX2(ENGINE_TABLE_OF(isa_avx2, Type, name))                          \
  ENGINE_IN_AVX512(ENGINE_TABLE_OF(isa_avx512, Type, name))                      \
  inline const Type& isa_table_of_##name() {                                     \
    const CpuIsa isa = ::engine::ops::cpu_isa();                                 \
    ENGINE_IN_AVX512(if (isa >= CpuIsa::kAvx512) return isa_avx512::name;)       \
    ENGINE_IN_AVX2(if (isa >= CpuIsa::kAvx2) return isa_avx2::name;)             \
    ENGINE_IN_BASELINE(if (isa >= CpuIsa::kBaseline) return isa_baseline::name;) \
    __builtin_unreachable();                                                     \
  }
#endif
