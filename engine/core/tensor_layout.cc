// Permutation between file and memory order: a transposition in tiles. At load and save only.
#include "engine/core/tensor_layout.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

namespace engine {
namespace {

struct Axis {
  std::int64_t count = 1, file_stride = 1, memory_stride = 1;  // in elements
};

// The axes of more than one element in the order of memory; those that are neighbours in both
// orders are one.
struct Axes {
  std::array<Axis, Shape::kMaxRank> axis;
  int count = 0;
};

Axes axes_of(const TensorLayout& layout) {
  const int rank = layout.file_shape.rank();
  std::array<std::int64_t, Shape::kMaxRank> file_stride{};
  std::int64_t stride = 1;
  for (int d = rank - 1; d >= 0; stride *= layout.file_shape[d--])
    file_stride[static_cast<std::size_t>(d)] = stride;
  const Shape memory = layout.memory_shape();
  Axes axes;
  for (int d = 0; d < rank; ++d) {
    const std::int64_t count = memory[d], step = file_stride[static_cast<std::size_t>(
                                              layout.permutation[static_cast<std::size_t>(d)])];
    if (count == 1) continue;
    Axis* last = axes.count > 0 ? &axes.axis[static_cast<std::size_t>(axes.count - 1)] : nullptr;
    if (last != nullptr && last->file_stride == count * step)
      *last = {last->count * count, step, 1};
    else
      axes.axis[static_cast<std::size_t>(axes.count++)] = {count, step, 1};
  }
  stride = 1;
  for (int a = axes.count - 1; a >= 0; --a) {
    Axis& axis = axes.axis[static_cast<std::size_t>(a)];
    axis.memory_stride = stride;
    stride *= axis.count;
  }
  return axes;
}

// Calls visit(file_index, memory_index) for the first element of every combination of `outer`, the
// last of which changes fastest.
template <class Visit>
void for_each_outer(std::span<const Axis> outer, std::int64_t file, std::int64_t memory,
                    const Visit& visit) {
  if (outer.empty()) return visit(file, memory);
  const Axis& axis = outer.front();
  for (std::int64_t i = 0; i < axis.count; ++i)
    for_each_outer(outer.subspan(1), file + i * axis.file_stride, memory + i * axis.memory_stride,
                   visit);
}

using Quad = std::uint32_t __attribute__((vector_size(16)));

void transpose(Quad (&rows)[4]) {
  const Quad a = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5),
             b = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5),
             c = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7),
             d = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
  rows[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
  rows[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
  rows[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
  rows[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}

// A transposition of the axis that is contiguous in memory and the one (or two) contiguous in the
// file, tile by tile, for all combinations of the others. kBytes per element. REQUIRES: two axes.
template <std::size_t kBytes, bool kToFile>
class Permutation {
 public:
  Permutation(Axes axes, const std::byte* from, std::byte* to) : from_(from), to_(to) {
    inner_ = axes.axis[static_cast<std::size_t>(--axes.count)];
    // Insertion sort of at most seven: the last has the smallest stride.
    for (int end = 1; end < axes.count; ++end)
      for (auto at = static_cast<std::size_t>(end);
           at > 0 && axes.axis[at - 1].file_stride < axes.axis[at].file_stride; --at)
        std::swap(axes.axis[at - 1], axes.axis[at]);
    if (inner_.file_stride != 1) run_ = axes.axis[static_cast<std::size_t>(--axes.count)];
    if (axes.count > 0 && axes.axis[static_cast<std::size_t>(axes.count - 1)].file_stride ==
                              run_.count)  // goes on where a run ends
      next_ = axes.axis[static_cast<std::size_t>(--axes.count)];
    axes_ = axes;
  }

  void run() const {
    if (inner_.file_stride == 1) return copy_runs();
    const std::int64_t runs = std::min(run_.count, kLength),
                       nexts = std::min(next_.count, std::max<std::int64_t>(1, kLength / runs));
    for (std::int64_t i = 0; i < inner_.count; i += kWidth)
      for_each_outer(
          outer(), i * inner_.file_stride, i, [&](std::int64_t file, std::int64_t memory) {
            for (std::int64_t n = 0; n < next_.count; n += nexts)
              for (std::int64_t r = 0; r < run_.count; r += runs)
                copy_tile(file + n * next_.file_stride + r,
                          memory + n * next_.memory_stride + r * run_.memory_stride,
                          {std::min(kWidth, inner_.count - i), std::min(nexts, next_.count - n),
                           std::min(runs, run_.count - r)});
          });
  }

 private:
  // Of a tile, which stays in the second cache: long rows in memory, since reading them is what
  // takes time. Its lines are not a power of two apart.
  static constexpr std::int64_t kWidth = 256, kLength = 64;
  static constexpr std::int64_t kLine = kLength + 8;
  struct Extent {
    std::int64_t inner, nexts, runs;
  };

  std::span<const Axis> outer() const {
    return {axes_.axis.data(), static_cast<std::size_t>(axes_.count)};
  }

  static std::size_t bytes(std::int64_t elements) {
    return static_cast<std::size_t>(elements) * kBytes;
  }

  // What is contiguous in memory is contiguous in the file.
  void copy_runs() const {
    for_each_outer(outer(), 0, 0, [&](std::int64_t file, std::int64_t memory) {
      for (std::int64_t n = 0; n < next_.count; ++n) {
        const std::size_t f = bytes(file + n * next_.file_stride),
                          m = bytes(memory + n * next_.memory_stride);
        std::memcpy(to_ + (kToFile ? f : m), from_ + (kToFile ? m : f), bytes(inner_.count));
      }
    });
  }

  // By way of a small buffer: both sides are touched a few whole cache lines at a time, for their
  // strides are often such that more would not be cached side by side.
  void copy_tile(std::int64_t file, std::int64_t memory, const Extent& extent) const {
    alignas(64) std::byte tile[kWidth * kLine * kBytes];
    std::array<std::size_t, kLength> places;  // of the tile's columns, in memory
    const std::size_t length = place_columns(memory, extent, places);
    const auto file_side = [&] {
      for (std::int64_t m = 0; m < extent.inner; ++m) {
        std::byte* line = tile + bytes(m * kLine);
        const std::size_t at = bytes(file + m * inner_.file_stride);
        if constexpr (kToFile)
          std::memcpy(to_ + at, line, length * kBytes);
        else
          std::memcpy(line, from_ + at, length * kBytes);
      }
    };
    if constexpr (!kToFile) file_side();
    std::size_t column = 0;
    for (; kBytes == 4 && column + 4 <= length; column += 4)
      copy_columns<4>(tile + column * kBytes, places.data() + column, extent.inner);
    for (; column < length; ++column)
      copy_columns<1>(tile + column * kBytes, places.data() + column, extent.inner);
    if constexpr (kToFile) file_side();
  }

  std::size_t place_columns(std::int64_t memory, const Extent& extent,
                            std::array<std::size_t, kLength>& places) const {
    std::size_t count = 0;
    for (std::int64_t n = 0; n < extent.nexts; ++n)
      for (std::int64_t r = 0; r < extent.runs; ++r)
        places[count++] = bytes(memory + n * next_.memory_stride + r * run_.memory_stride);
    return count;
  }

  // Some columns of the tile, `rows` elements each. Four at a time are four by four squares.
  template <int kColumns>
  void copy_columns(std::byte* column, const std::size_t* places, std::int64_t rows) const {
    std::int64_t m = 0;
    if constexpr (kColumns == 4)
      for (; m + 4 <= rows; m += 4) {
        Quad square[4];
        for (std::int64_t i = 0; i < 4; ++i)
          std::memcpy(&square[i],
                      kToFile ? from_ + places[i] + bytes(m) : column + bytes((m + i) * kLine),
                      sizeof(Quad));
        transpose(square);
        for (std::int64_t i = 0; i < 4; ++i)
          std::memcpy(kToFile ? column + bytes((m + i) * kLine) : to_ + places[i] + bytes(m),
                      &square[i], sizeof(Quad));
      }
    for (; m < rows; ++m)
      for (std::size_t c = 0; c < kColumns; ++c) {
        std::byte* in_tile = column + bytes(m * kLine) + c * kBytes;
        const std::size_t at = places[c] + bytes(m);
        std::memcpy(kToFile ? in_tile : to_ + at, kToFile ? from_ + at : in_tile, kBytes);
      }
  }

  const std::byte* from_;
  std::byte* to_;
  Axes axes_;   // the others
  Axis inner_;  // contiguous in memory
  Axis run_;    // contiguous in the file
  Axis next_{.count = 1, .file_stride = 0, .memory_stride = 0};
};

template <bool kToFile>
void copy_elements(const TensorLayout& layout, const void* from, void* to, std::size_t bytes) {
  const auto* source = static_cast<const std::byte*>(from);
  auto* target = static_cast<std::byte*>(to);
  const std::int64_t count = layout.file_shape.count();
  if (count == 0) return;
  const Axes axes = axes_of(layout);
  if (axes.count <= 1) {
    std::memcpy(target, source, static_cast<std::size_t>(count) * bytes);
    return;
  }
  switch (bytes) {
    case 1:
      return Permutation<1, kToFile>(axes, source, target).run();
    case 2:
      return Permutation<2, kToFile>(axes, source, target).run();
    case 4:
      return Permutation<4, kToFile>(axes, source, target).run();
    default:
      return Permutation<8, kToFile>(axes, source, target).run();  // the largest element type
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
  copy_elements<false>(*this, file, memory, element_bytes);
}

void TensorLayout::to_file(const void* memory, void* file, std::size_t element_bytes) const {
  copy_elements<true>(*this, memory, file, element_bytes);
}

}  // namespace engine
