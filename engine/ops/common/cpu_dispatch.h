// Which instruction set the fast CPU kernels run with, chosen once at run time.
//
// How a fast kernel is built. `x_cpu.cc` is one source, compiled once per instruction set
// (CMakeLists.txt, kernel_isa_sources) inside `namespace engine::ops::ENGINE_ISA_NAMESPACE`, and
// ends in one constant table of function pointers. `x_cpu.h` declares the table for every
// instruction set with ENGINE_ISA_TABLE; x.cc calls isa_table_of_x().function(...).
//
// The one-definition rule. Code compiled for AVX-512 must never be merged by the linker with the
// same inline function compiled for plain x86-64. So these sources take and pass pointers, numbers
// and plain structs only; use no std:: function, no inline function of other headers (TensorView,
// Shape, align_up ...) and no template outside their own namespace. ThreadPool::run with a lambda
// is safe: the lambda's type belongs to the namespace. Eigen is safe too: its namespace is renamed
// per instruction set. tests/engine/ops checks the object files for weak symbols that break this.
#pragma once

#include <cstdint>
#include <string_view>

#if defined(__x86_64__) || defined(_M_X64)
#define ENGINE_X86_ISAS 1
#else
#define ENGINE_X86_ISAS 0
#endif

namespace engine::ops {

// Ordered: each includes the ones before it.
enum class CpuIsa : std::uint8_t {
  kBaseline,  // what every CPU of the architecture has: SSE2 on x86-64, NEON on aarch64
  kAvx2,      // AVX2 and FMA
  kAvx512,    // AVX-512 F, VL, BW, DQ
  kAmx,       // AMX's tiles of bf16, beside AVX512_BF16: for products in bf16; else as AVX-512
};

std::string_view to_string(CpuIsa isa);  // "baseline", "avx2", "avx512", "amx"

// The best that this CPU, its operating system and this build support.
CpuIsa best_cpu_isa();

// What kernels run with: best_cpu_isa(), or what the environment variable ENGINE_ISA names. Read
// once, at the first call. Throws ModelError when ENGINE_ISA is unknown or more than the CPU has.
CpuIsa cpu_isa();

// Replaces the choice, for tests and benchmarks. Throws ModelError when the CPU lacks it. Not while
// kernels run.
void set_cpu_isa(CpuIsa isa);

// The instruction set named `text`. Throws ModelError with the known names, or when this CPU lacks
// it.
CpuIsa parse_cpu_isa(std::string_view text);

}  // namespace engine::ops

// ENGINE_ISA_TABLE(Type, name), inside namespace engine::ops: declares `extern const Type name` in
// the namespace of each instruction set, and isa_table_of_name(), which returns the one to use.
// Within a source that is compiled per instruction set it declares that one's table alone.
#if defined(ENGINE_ISA_NAMESPACE)
#define ENGINE_ISA_TABLE(Type, name) \
  namespace ENGINE_ISA_NAMESPACE {   \
  extern const Type name;            \
  }
#elif ENGINE_X86_ISAS
#ifndef ENGINE_HAS_AVX512
#error "link engine_ops: every table must know the same instruction sets"
#elif ENGINE_HAS_AVX512
#define ENGINE_AVX512_DECLARATION(Type, name) \
  namespace isa_avx512 {                      \
  extern const Type name;                     \
  }
#define ENGINE_AVX512_CASE(name) \
  case CpuIsa::kAmx:             \
  case CpuIsa::kAvx512:          \
    return isa_avx512::name;
#else
#define ENGINE_AVX512_DECLARATION(Type, name)
#define ENGINE_AVX512_CASE(name)
#endif
#define ENGINE_ISA_TABLE(Type, name)         \
  namespace isa_baseline {                   \
  extern const Type name;                    \
  }                                          \
  namespace isa_avx2 {                       \
  extern const Type name;                    \
  }                                          \
  ENGINE_AVX512_DECLARATION(Type, name)      \
  inline const Type& isa_table_of_##name() { \
    switch (::engine::ops::cpu_isa()) {      \
      ENGINE_AVX512_CASE(name)               \
      case CpuIsa::kAvx2:                    \
        return isa_avx2::name;               \
      default:                               \
        return isa_baseline::name;           \
    }                                        \
  }
#else
#define ENGINE_ISA_TABLE(Type, name) \
  namespace isa_baseline {           \
  extern const Type name;            \
  }                                  \
  inline const Type& isa_table_of_##name() { return isa_baseline::name; }
#endif
