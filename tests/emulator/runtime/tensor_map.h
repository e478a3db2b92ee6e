// What is in a tensor map (CUtensorMap) of the emulator: how the copy engine walks through a tensor
// in device memory. The driver of a GPU keeps something else in its 128 bytes.
#pragma once

#include <cstdint>
#include <string>

namespace fake {

enum class TensorSwizzle : std::uint8_t { kNone, k32, k64, k128 };
enum class TensorElement : std::uint8_t { kInteger, kF32, kF16, kBf16, kF64 };

struct TensorMap {
  static constexpr std::uint64_t kMagic = 0x70616d726f736e74;
  std::uint64_t magic = 0;
  std::uint64_t address = 0;
  std::uint64_t size[5] = {};    // elements
  std::uint64_t stride[5] = {};  // bytes; of dimension 0 those of an element
  std::uint16_t box[5] = {};     // elements
  std::uint8_t every[5] = {};    // element strides
  std::uint8_t rank = 0;
  TensorSwizzle swizzle = TensorSwizzle::kNone;
  TensorElement element = TensorElement::kInteger;

  unsigned element_bytes() const { return static_cast<unsigned>(stride[0]); }
  // Elements of a box along a dimension.
  unsigned count(unsigned dimension) const {
    return dimension == 0 ? box[0] : (box[dimension] + every[dimension] - 1u) / every[dimension];
  }
};
static_assert(sizeof(TensorMap) <= 128);

// What the driver is told, by its names (cuda.h); 0 in `bytes`: a type that is not known here.
struct TensorRequest {
  unsigned element_bytes;
  TensorElement element;
  bool floating;
  unsigned rank;
  std::uint64_t address;
  const std::uint64_t* size;
  const std::uint64_t* stride;  // of dimensions 1 and up
  const std::uint32_t* box;
  const std::uint32_t* every;
  unsigned interleave, swizzle, l2, fill;
};
// Empty, or what the driver refuses about it.
std::string refusal(const TensorRequest& request);
TensorMap tensor_map_of(const TensorRequest& request);

// The place of a byte of a box that begins somewhere in shared memory; both are addresses.
constexpr std::uint32_t swizzled(TensorSwizzle swizzle, std::uint32_t address) {
  const std::uint32_t rows = (1u << static_cast<unsigned>(swizzle)) - 1;  // 0, 1, 3, 7
  return address ^ ((address >> 7 & rows) << 4);
}

}  // namespace fake
