// AMX's registers in plain C++, by the operation of each instruction in the manual (Intel 64 and
// IA-32 Architectures Software Developer's Manual, volume 2): what the kernels for AMX are linked
// with in ops_amx_test, in place of the instructions. Compiled for each of their namespaces.
#include <cmath>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <string>

#include "engine/ops/gemm/amx_registers.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

constexpr int kTiles = 8, kMaxRows = 16, kMaxBytes = 64;

struct Register {
  unsigned char bytes[kMaxRows][kMaxBytes];
};

struct Registers {
  bool configured = false;
  TileShapes shapes;
  Register tiles[kTiles];
};
thread_local Registers registers;

[[noreturn]] void fault(const char* what) { throw std::logic_error(std::string("AMX: ") + what); }

Register& use(int tile) {
  if (!registers.configured) fault("no configuration");
  if (registers.shapes.rows[tile] == 0) fault("a register without rows is used");
  return registers.tiles[tile];
}

// Denormals, read or made, are zeros.
float flushed(float value) {
  return std::fabs(value) < 0x1p-126f ? std::copysign(0.f, value) : value;
}
float add(float a, float b) { return flushed(flushed(a) + flushed(b)); }
float multiply_add(float a, float b, float c) {
  return flushed(std::fma(flushed(a), flushed(b), flushed(c)));
}

float float_at(const Register& tile, std::ptrdiff_t row, std::ptrdiff_t column) {
  float value = 0;
  std::memcpy(&value, tile.bytes[row] + 4 * column, 4);
  return value;
}

// The upper half of a float's bits.
float bf16_at(const Register& tile, std::ptrdiff_t row, std::ptrdiff_t column) {
  float value = 0;
  std::memcpy(reinterpret_cast<unsigned char*>(&value) + 2, tile.bytes[row] + 2 * column, 2);
  return value;
}

}  // namespace

void model_configure(const TileShapes& shapes) {
  if (shapes.palette != 1) fault("palette");
  for (int i = 0; i < 16; ++i) {
    const int rows = shapes.rows[i], bytes = shapes.row_bytes[i];
    if ((rows == 0) != (bytes == 0) || rows > kMaxRows || bytes > kMaxBytes ||
        (i >= kTiles && rows > 0) || (i < 14 && shapes.reserved[i] != 0))
      fault("a shape that LDTILECFG refuses");
  }
  registers = {true, shapes, {}};
}

void model_release() { registers.configured = false; }

void model_clear(int tile) { use(tile) = {}; }

void model_load(int tile, const float* from, std::int64_t stride) {
  Register loaded{};
  use(tile);
  for (int row = 0; row < registers.shapes.rows[tile]; ++row)
    std::memcpy(loaded.bytes[row], from + row * stride, registers.shapes.row_bytes[tile]);
  registers.tiles[tile] = loaded;
}

void model_store(int tile, float* to, std::int64_t stride) {
  const Register& stored = use(tile);
  for (int row = 0; row < registers.shapes.rows[tile]; ++row)
    std::memcpy(to + row * stride, stored.bytes[row], registers.shapes.row_bytes[tile]);
}

void model_add_products(int sum, int a, int b) {
  const TileShapes& shapes = registers.shapes;
  Register& to = use(sum);
  const Register &left = use(a), &right = use(b);
  if (sum == a || sum == b || a == b) fault("a register is used twice");
  if (shapes.rows[sum] != shapes.rows[a] || shapes.row_bytes[sum] != shapes.row_bytes[b] ||
      shapes.row_bytes[a] != 4 * shapes.rows[b])
    fault("shapes do not fit each other");
  for (int m = 0; m < shapes.rows[sum]; ++m) {
    for (std::ptrdiff_t n = 0; n < shapes.row_bytes[sum] / 4; ++n) {
      float even = 0, odd = 0;
      for (std::ptrdiff_t k = 0; k < shapes.row_bytes[a] / 4; ++k) {
        even = multiply_add(bf16_at(left, m, 2 * k), bf16_at(right, k, 2 * n), even);
        odd = multiply_add(bf16_at(left, m, 2 * k + 1), bf16_at(right, k, 2 * n + 1), odd);
      }
      const float total = add(float_at(to, m, n), add(even, odd));
      std::memcpy(to.bytes[m] + 4 * n, &total, 4);
    }
  }
}

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
