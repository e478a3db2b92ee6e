// Source: CUDA driver API 13.0, cuTensorMapEncodeTiled.
#include "tests/emulator/runtime/tensor_map.h"

#include <initializer_list>

namespace fake {
namespace {

std::string number(const char* what, unsigned dimension, std::uint64_t value) {
  return std::string(what) + " of dimension " + std::to_string(dimension) + " is " +
         std::to_string(value);
}

std::string refused_dimension(const TensorRequest& r, unsigned d) {
  if (r.size[d] == 0 || r.size[d] > std::uint64_t{1} << 32)
    return number("the size", d, r.size[d]) + ": not in 1..2^32";
  if (r.box[d] == 0 || r.box[d] > 256) return number("the box", d, r.box[d]) + ": not in 1..256";
  if (r.every[d] == 0 || r.every[d] > 8)
    return number("the element stride", d, r.every[d]) + ": not in 1..8";
  if (d == 0) return "";
  const std::uint64_t stride = r.stride[d - 1];
  if (stride % 16 != 0) return number("the stride", d, stride) + " bytes: no multiple of 16";
  if (stride >= std::uint64_t{1} << 40)
    return number("the stride", d, stride) + " bytes: not less than 2^40";
  return "";
}

}  // namespace

std::string refusal(const TensorRequest& r) {
  if (r.element_bytes == 0) return "a data type that is not known here";
  if (r.rank == 0 || r.rank > 5) return "a rank of " + std::to_string(r.rank) + ": not in 1..5";
  if (r.address % 16 != 0) return "the tensor's address is not aligned to 16 bytes";
  if (r.interleave != 0) return "interleaved tensors are not known here";
  if (r.swizzle > 3) return "swizzle " + std::to_string(r.swizzle) + " is not known here";
  if (r.l2 > 3) return "L2 promotion " + std::to_string(r.l2);
  if (r.fill != 0) return r.floating ? "a fill of NaN is not known here" : "a fill of NaN";
  for (unsigned d = 0; d < r.rank; ++d)
    if (std::string text = refused_dimension(r, d); !text.empty()) return text;
  const unsigned inner = r.box[0] * r.element_bytes, span = 16u << r.swizzle;
  if (inner % 16 != 0)
    return "the box has rows of " + std::to_string(inner) + " bytes: no multiple of 16";
  if (r.swizzle != 0 && inner > span)
    return "the box has rows of " + std::to_string(inner) + " bytes, more than the swizzle's " +
           std::to_string(span);
  return "";
}

TensorMap tensor_map_of(const TensorRequest& r) {
  TensorMap map;
  map.magic = TensorMap::kMagic;
  map.address = r.address;
  map.rank = static_cast<std::uint8_t>(r.rank);
  map.swizzle = static_cast<TensorSwizzle>(r.swizzle);
  map.element = r.element;
  for (unsigned d = 0; d < r.rank; ++d) {
    map.size[d] = r.size[d];
    map.stride[d] = d == 0 ? r.element_bytes : r.stride[d - 1];
    map.box[d] = static_cast<std::uint16_t>(r.box[d]);
    map.every[d] = static_cast<std::uint8_t>(r.every[d]);
  }
  return map;
}

}  // namespace fake
