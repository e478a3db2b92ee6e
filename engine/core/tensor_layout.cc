// Element-wise permutation between file and memory order; runs at load and save only.
#include "engine/core/tensor_layout.h"

#include <cstdint>
#include <cstring>

namespace engine {
namespace {

// Calls visit(file_index, memory_index) for every element, in memory order.
template <class Visit>
void for_each_element(const TensorLayout& layout, Visit visit) {
  const int rank = layout.file_shape.rank();
  std::array<std::int64_t, Shape::kMaxRank> file_stride{}, index{};
  std::int64_t stride = 1;
  for (int d = rank - 1; d >= 0; stride *= layout.file_shape[d--])
    file_stride[static_cast<std::size_t>(d)] = stride;
  const Shape memory = layout.memory_shape();
  const std::int64_t count = memory.count();
  for (std::int64_t m = 0, f = 0; m < count; ++m) {
    visit(f, m);
    for (int d = rank - 1; d >= 0; --d) {
      const auto i = static_cast<std::size_t>(d);
      const std::int64_t step = file_stride[static_cast<std::size_t>(layout.permutation[i])];
      f += step;
      if (++index[i] < memory[d]) break;
      f -= step * memory[d];
      index[i] = 0;
    }
  }
}

}  // namespace

Shape TensorLayout::memory_shape() const {
  Shape memory = file_shape;
  for (int d = 0; d < memory.rank(); ++d)
    memory[d] = file_shape[permutation[static_cast<std::size_t>(d)]];
  return memory;
}

void TensorLayout::to_memory(const void* file, void* memory, std::size_t element_bytes) const {
  const auto* from = static_cast<const std::byte*>(file);
  auto* to = static_cast<std::byte*>(memory);
  for_each_element(*this, [&](std::int64_t f, std::int64_t m) {
    std::memcpy(to + static_cast<std::size_t>(m) * element_bytes,
                from + static_cast<std::size_t>(f) * element_bytes, element_bytes);
  });
}

void TensorLayout::to_file(const void* memory, void* file, std::size_t element_bytes) const {
  const auto* from = static_cast<const std::byte*>(memory);
  auto* to = static_cast<std::byte*>(file);
  for_each_element(*this, [&](std::int64_t f, std::int64_t m) {
    std::memcpy(to + static_cast<std::size_t>(f) * element_bytes,
                from + static_cast<std::size_t>(m) * element_bytes, element_bytes);
  });
}

}  // namespace engine
