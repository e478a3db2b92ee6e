// Permutes tensors between file and memory order by transposition in tiles, only at load and save.
#include "engine/core/tensor_layout.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

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

// The axes with more than one element, in memory order; axes that are adjacent in both orders are
// merged.
struct Axes {
  std::array<Axis, Shape::kMaxRank> axis;
  int count = 0;
};

// Indexed by the file's dimensions; has rank() entries.
using Strides = std::array<std::int64_t, Shape::kMaxRank>;

Strides file_strides(const TensorLayout& layout) {
  Strides strides{};
  std::int64_t stride = 1;
  for (int d = layout.file_shape.rank() - 1; d >= 0; stride *= layout.file_shape[d--])
    strides[static_cast<std::size_t>(d)] = stride;
  return strides;
}

Strides memory_strides(const TensorLayout& layout) {
  Strides strides{};
  std::int64_t stride = 1;
  for (int m = layout.file_shape.rank() - 1; m >= 0; --m) {
    const int d = layout.permutation[static_cast<std::size_t>(m)];
    strides[static_cast<std::size_t>(d)] = stride;
    stride *= layout.file_shape[d];
  }
  return strides;
}

// Returns the axes for `rows` rows of the file's first dimension.
Axes axes_of(const TensorLayout& layout, std::int64_t rows) {
  const Strides file = file_strides(layout), memory = memory_strides(layout);
  Axes axes;
  for (int m = 0; m < layout.file_shape.rank(); ++m) {
    const int d = layout.permutation[static_cast<std::size_t>(m)];
    if (layout.file_shape[d] == 1) continue;
    const Axis next{d == 0 ? rows : layout.file_shape[d], file[static_cast<std::size_t>(d)],
                    memory[static_cast<std::size_t>(d)]};
    Axis* last = axes.count > 0 ? &axes.axis[static_cast<std::size_t>(axes.count - 1)] : nullptr;
    if (last != nullptr && last->file_stride == next.count * next.file_stride &&
        last->memory_stride == next.count * next.memory_stride)
      *last = {last->count * next.count, next.file_stride, next.memory_stride};
    else
      axes.axis[static_cast<std::size_t>(axes.count++)] = next;
  }
  return axes;
}

// Calls visit(file_index, memory_index) for the first element of every combination of `outer`,
// whose last axis changes fastest.
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

// Stores data that is not read soon, without loading its cache lines first. Call finish_stores()
// after the last store.
inline void store_past_caches(std::byte* to, const Quad& four) {
#if defined(__SSE2__)
  if (reinterpret_cast<std::uintptr_t>(to) % sizeof(Quad) == 0) {
    __m128i bits;
    std::memcpy(&bits, &four, sizeof bits);
    return _mm_stream_si128(reinterpret_cast<__m128i*>(to), bits);
  }
#endif
  std::memcpy(to, &four, sizeof four);
}

inline void finish_stores() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

// Transposes the axis that is contiguous in memory and the one (or two) contiguous in the file,
// tile by tile, for all combinations of the other axes. kBytes is the element size. REQUIRES: two
// axes.
template <std::size_t kBytes, bool kToFile>
class Permutation {
 public:
  Permutation(Axes axes, const std::byte* from, std::byte* to) : from_(from), to_(to) {
    inner_ = axes.axis[static_cast<std::size_t>(--axes.count)];
    // Insertion sort of at most seven axes: the last has the smallest stride.
    for (int end = 1; end < axes.count; ++end)
      for (auto at = static_cast<std::size_t>(end);
           at > 0 && axes.axis[at - 1].file_stride < axes.axis[at].file_stride; --at)
        std::swap(axes.axis[at - 1], axes.axis[at]);
    if (inner_.file_stride != 1) run_ = axes.axis[static_cast<std::size_t>(--axes.count)];
    if (axes.count > 0 && axes.axis[static_cast<std::size_t>(axes.count - 1)].file_stride ==
                              run_.count)  // continues where a run ends
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
    finish_stores();
  }

 private:
  // The size of a tile, which fits in the L2 cache: rows are long on the side that is read, because
  // reading them dominates the time. Lines are not a power of two apart.
  static constexpr std::int64_t kWidth = kToFile ? 256 : 32, kLength = kToFile ? 64 : 128;
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

  // Handles tensors whose runs are contiguous both in memory and in the file.
  void copy_runs() const {
    for_each_outer(outer(), 0, 0, [&](std::int64_t file, std::int64_t memory) {
      for (std::int64_t n = 0; n < next_.count; ++n) {
        const std::size_t f = bytes(file + n * next_.file_stride),
                          m = bytes(memory + n * next_.memory_stride);
        std::memcpy(to_ + (kToFile ? f : m), from_ + (kToFile ? m : f), bytes(inner_.count));
      }
    });
  }

  // Copies through a small buffer: both sides are accessed a few whole cache lines at a time,
  // because their strides often map more lines than that to the same cache sets.
  void copy_tile(std::int64_t file, std::int64_t memory, const Extent& extent) const {
    alignas(64) std::byte tile[kWidth * kLine * kBytes];
    std::array<std::size_t, kLength> places;  // memory offsets of the tile's columns
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

  // Copies some columns of the tile, `rows` elements each. Four columns are copied in 4 x 4
  // squares.
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
          if constexpr (kToFile)
            std::memcpy(column + bytes((m + i) * kLine), &square[i], sizeof(Quad));
          else
            store_past_caches(to_ + places[i] + bytes(m), square[i]);
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
  Axes axes_;   // the other axes
  Axis inner_;  // contiguous in memory
  Axis run_;    // contiguous in the file
  Axis next_{.count = 1, .file_stride = 0, .memory_stride = 0};
};

template <bool kToFile>
void copy_elements(const TensorLayout& layout, std::int64_t rows, const void* from, void* to,
                   std::size_t bytes) {
  const auto* source = static_cast<const std::byte*>(from);
  auto* target = static_cast<std::byte*>(to);
  if (rows == 0 || layout.file_shape.count() == 0) return;
  const Axes axes = axes_of(layout, rows);
  if (axes.count <= 1) {
    const std::int64_t count = axes.count == 0 ? 1 : axes.axis[0].count;
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

std::int64_t rows_of(const Shape& shape) { return shape.rank() == 0 ? 1 : shape[0]; }

}  // namespace

Shape TensorLayout::memory_shape() const {
  Shape memory = file_shape;
  for (int d = 0; d < memory.rank(); ++d)
    memory[d] = file_shape[permutation[static_cast<std::size_t>(d)]];
  return memory;
}

void TensorLayout::to_memory(const void* file, void* memory, std::size_t element_bytes) const {
  copy_elements<false>(*this, rows_of(file_shape), file, memory, element_bytes);
}

void TensorLayout::rows_to_memory(const void* file_rows, std::int64_t first, std::int64_t count,
                                  void* memory, std::size_t element_bytes) const {
  auto* begin = static_cast<std::byte*>(memory) +
                static_cast<std::size_t>(first * memory_strides(*this).front()) * element_bytes;
  copy_elements<false>(*this, count, file_rows, begin, element_bytes);
}

void TensorLayout::to_file(const void* memory, void* file, std::size_t element_bytes) const {
  copy_elements<true>(*this, rows_of(file_shape), memory, file, element_bytes);
}

}  // namespace engine
