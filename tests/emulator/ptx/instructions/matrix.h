// Numbers of 16 bits, and the instructions that move and multiply matrices.
#pragma once

#include <bit>
#include <cmath>

#include "tests/emulator/ptx/decode/ptx_program.h"

namespace ptx {

inline std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (value != value) return 0x7fff;
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}
std::uint16_t to_f16(float value);
float from_f16(std::uint16_t bits);

enum class Element { kTf32, kBf16, kF16 };

void commit_copies(Warp& w, const Instruction& i);
void wait_copies(Warp& w, const Instruction& i);
template <int kCount, bool kTransposed>
void load_matrices(Warp& w, const Instruction& i);
template <Element kElement>
void multiply(Warp& w, const Instruction& i);
void multiply_m16n8k8_f16(Warp& w, const Instruction& i);
void multiply_m8n8k4_f16(Warp& w, const Instruction& i);

void fence_proxy(Warp& w, const Instruction& i);
void fence_products(Warp& w, const Instruction& i);
void commit_products(Warp& w, const Instruction& i);
void wait_products(Warp& w, const Instruction& i);

}  // namespace ptx
