// Plain row-major matrices as operands and as the result of matrix products (gemm_main_loop.h).
#pragma once

#include <limits>

#include "engine/core/error.h"
#include "engine/ops/gemm/gemm_main_loop.h"

namespace engine::ops::cuda {

// Returns the largest of 16, 4 and sizeof(T) to which `data` and every row of `pitch` elements are
// aligned.
template <class T>
int alignment_of(const T* data, std::int64_t pitch) {
  const auto both =
      reinterpret_cast<std::uintptr_t>(data) | (static_cast<std::uintptr_t>(pitch) * sizeof(T));
  return both % 16 == 0 ? 16 : both % 4 == 0 ? 4 : static_cast<int>(sizeof(T));
}

// Copies 16 bytes to shared memory, element by element: next() returns the address of each in turn,
// or null for a zero. Floats are asynchronous copies of 4 bytes, smaller types pass through
// registers, kTogether of them at a time (more would cost the fast path registers). `any` is a
// valid address.
template <class S, class Next>
__device__ __forceinline__ void copy_elements(S* to, const S* any, Next next) {
  constexpr int kChunk = Packed<S>::kCount, kTogether = 4;
  struct alignas(kTogether * sizeof(S)) Few {
    S at[kTogether];
  };
#pragma unroll 1
  for (int first = 0; first < kChunk; first += kTogether) {
    Few few;
#pragma unroll
    for (int e = 0; e < kTogether; ++e) {
      const S* from = next();
      if constexpr (sizeof(S) == 4)
        copy_async_4(to + first + e, from == nullptr ? any : from, from == nullptr ? 0 : 4);
      else
        few.at[e] = from == nullptr ? from_float<S>(0) : *from;
    }
    if constexpr (sizeof(S) != 4) *reinterpret_cast<Few*>(to + first) = few;
  }
}

// Copies 16 bytes to shared memory: `valid` elements of `from`, which is aligned to `alignment`
// (16, 4 or sizeof(T)), then zeros. With alignment 16 all or none are valid.
template <class T>
__device__ __forceinline__ void copy_chunk(T* to, const T* from, int valid, int alignment) {
  if (alignment == 16) return copy_or_zero_16(to, from, valid > 0);
  if (alignment == 4) {
    constexpr int kChunk = static_cast<int>(16 / sizeof(T)),
                  kPart = static_cast<int>(4 / sizeof(T));
#pragma unroll 1  // see copy_elements()
    for (int i = 0; i < kChunk; i += kPart, valid -= kPart) {
      const int left = valid < 0 ? 0 : valid < kPart ? valid : kPart;
      copy_async_4(to + i, from + i, left * static_cast<int>(sizeof(T)));
    }
    return;
  }
  copy_elements(to, from, [&] {
    const T* next = valid-- > 0 ? from : nullptr;
    ++from;
    return next;
  });
}

// Returns the address `bytes` further on.
template <class S>
__device__ __forceinline__ const S* moved(const S* from, std::int64_t bytes) {
  return reinterpret_cast<const S*>(reinterpret_cast<const char*>(from) + bytes);
}

// A matrix whose element (line, depth) is at line * pitch + depth (kByDepth) or at depth * pitch +
// line. kAligned: its data and rows are aligned to 16 bytes. This is a template parameter because a
// main loop that had to test it would contain the code for all alignments. Chunks of an aligned
// matrix are whole: if rows are longer than the multiplied part, the numbers after it must be
// finite, and along k they must be zeros (padded_rows_cuda.h).
template <class S, bool kByDepth_, bool kAligned = false>
struct MatrixLoader {
  using Storage = S;
  static constexpr bool kByDepth = kByDepth_;
  static constexpr int kChunk = static_cast<int>(16 / sizeof(S));
  struct Line {
    int at;
  };
  struct Depth {};

  const S* data;
  int lines, pitch_bytes, alignment;

  static MatrixLoader of(const S* data, std::int64_t lines, std::int64_t pitch) {
    constexpr std::int64_t kMost = std::numeric_limits<int>::max() / std::int64_t{sizeof(S)};
    require(pitch <= kMost, "a matrix with rows of 2 GiB or more");
    const int alignment = alignment_of(data, pitch);
    require(!kAligned || alignment == 16, "a matrix that is not aligned to 16 bytes");
    return {data, static_cast<int>(lines), static_cast<int>(pitch) * static_cast<int>(sizeof(S)),
            alignment};
  }
  __device__ __forceinline__ Line line(int line) const { return {line}; }
  __device__ __forceinline__ Depth depth(int) const { return {}; }
  template <int kBy>
  __device__ __forceinline__ void advance(Depth&) const {}
  __device__ __forceinline__ void copy(S* to, const Line& line, const Depth&, int depth,
                                       int depth_end) const {
    const S* from = kByDepth ? moved(data + depth, std::int64_t{line.at} * pitch_bytes)
                             : moved(data + line.at, std::int64_t{depth} * pitch_bytes);
    if constexpr (kAligned)
      copy_or_zero_16(to, from, (line.at < lines) & (depth < depth_end));
    else if constexpr (kByDepth)
      copy_chunk(to, from, line.at < lines ? depth_end - depth : 0, alignment);
    else
      copy_chunk(to, from, depth < depth_end ? lines - line.at : 0, alignment);
  }
};

// to[0, count) = values, or += values; count <= 8. `aligned`: `to` is aligned to 16 bytes.
template <class T>
__device__ __forceinline__ void store_run(T* to, const float (&values)[8], int count, bool aligned,
                                          bool add) {
  constexpr int kChunk = Packed<T>::kCount;
  if (aligned && count == 8) {
#pragma unroll
    for (int i = 0; i < 8; i += kChunk) {
      Packed<T> chunk{};
      if (add) chunk = load_packed(to + i);
#pragma unroll
      for (int j = 0; j < kChunk; ++j)
        chunk.at[j] = from_float<T>(add ? to_float(chunk.at[j]) + values[i + j] : values[i + j]);
      store_packed(to + i, chunk);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (i < count) to[i] = from_float<T>(add ? to_float(to[i]) + values[i] : values[i]);
}

// An epilogue that stores C as a row-major matrix, with the additions of a layer.
template <class T>
struct MatrixStore {
  T* to;
  std::int64_t pitch;
  const float* bias;  // [n] or null
  bool relu, add, aligned;

  static MatrixStore of(T* to, std::int64_t pitch, bool add, const float* bias = nullptr,
                        bool relu = false) {
    return {to, pitch, bias, relu, add, alignment_of(to, pitch) == 16};
  }
  __device__ __forceinline__ void operator()(int row, int column, const float (&values)[8],
                                             int count) const {
    float results[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      results[i] = values[i];
      if (bias != nullptr && i < count) results[i] += bias[column + i];
      if (relu && results[i] < 0) results[i] = 0;  // NaN stays
    }
    store_run(to + row * pitch + column, results, count, aligned, add);
  }
};

// A product of plain matrices.
template <class S, bool kByDepthA, bool kByDepthB, class T, bool kAligned = false>
using MatrixProduct = GemmProduct<MatrixLoader<S, kByDepthA, kAligned>,
                                  MatrixLoader<S, kByDepthB, kAligned>, MatrixStore<T>>;

}  // namespace engine::ops::cuda
