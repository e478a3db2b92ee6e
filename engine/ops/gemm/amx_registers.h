// AMX: eight registers, tmm0 to tmm7, each a tile of up to 16 rows of up to 64 bytes, with six
// functions that compute with them. The functions use inline assembly: GCC 12's intrinsics do not
// tell the compiler that a load reads memory, so that it may drop earlier stores there, nor that a
// configuration is more than its first eight bytes (amxtileintrin.h). So the compiler itself does
// not get AMX enabled, and only callers of these functions contain such instructions.
//
// With ENGINE_AMX_MODEL they call a C++ model of the registers, for tests on other CPUs
// (tests/engine/ops/gemm/amx_model.cc).
//
// REQUIRES for every function: amx_granted() (common/amx_permission.h). The registers belong to a
// thread. Only for sources compiled for AMX.
#pragma once

#include <cstdint>

#define ENGINE_INLINE inline __attribute__((always_inline))

namespace engine::ops::ENGINE_ISA_NAMESPACE {

// The format of the registers' shapes for LDTILECFG. Registers without rows cannot be used.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, first_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileShapes) == 64);

#if defined(ENGINE_AMX_MODEL)
void model_configure(const TileShapes& shapes);
void model_release();
void model_clear(int tile);
void model_load(int tile, const float* from, std::int64_t stride);
void model_store(int tile, float* to, std::int64_t stride);
void model_add_products(int sum, int a, int b);
#define ENGINE_AMX(instruction, model) model
#else
#define ENGINE_AMX(instruction, model) asm volatile instruction
#endif

// Fills all registers with zeros.
ENGINE_INLINE void configure_tiles(const TileShapes& shapes) {
  ENGINE_AMX(("ldtilecfg %0" ::"m"(shapes)), model_configure(shapes));
}

// After this, the thread has no tiles that a context switch must save.
ENGINE_INLINE void release_tiles() { ENGINE_AMX(("tilerelease"), model_release()); }

template <int kTile>
ENGINE_INLINE void clear_tile() {
  ENGINE_AMX(("tilezero %%tmm%c0" ::"i"(kTile)), model_clear(kTile));
}

// Rows are `stride` floats apart.
template <int kTile>
ENGINE_INLINE void load_tile(const float* from, std::int64_t stride) {
  ENGINE_AMX(("tileloadd (%0,%1,4), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile)
              : "memory"),
             model_load(kTile, from, stride));
}
template <int kTile>
ENGINE_INLINE void store_tile(float* to, std::int64_t stride) {
  ENGINE_AMX(("tilestored %%tmm%c2, (%0,%1,4)" ::"r"(to), "r"(stride), "i"(kTile)
              : "memory"),
             model_store(kTile, to, stride));
}

// sum [m][n] += both products of the pairs a [m][k] and b [k][n], over all k: TDPBF16PS.
template <int kSum, int kA, int kB>
ENGINE_INLINE void add_tile_products() {
  ENGINE_AMX(("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB)),
             model_add_products(kSum, kA, kB));
}

#undef ENGINE_AMX

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
