// What brings convolution's operands into shared memory, a tile at a time. A tile is kRows rows of kLine consecutive elements,
// kPitch apart; a thread takes the same 16-byte piece of every (kThreads / kPieces)-th row. Where every piece lies in one run of
// channels and is aligned (`vector`) it comes by an asynchronous copy, else element by element. What is outside is zero.
#pragma once

#include "engine/kernels/cuda/conv2d_window.h"
#include "engine/kernels/cuda/device_code.h"

namespace engine::kernels::cuda {

// Who copies what of a tile.
template <class S, int kRows, int kLine, int kPitch, int kThreads>
struct TileShare {
  static constexpr int kPiece = 16 / static_cast<int>(sizeof(S)), kPieces = kLine / kPiece, kStep = kThreads / kPieces,
                       kEach = kRows / kStep;
  static_assert(kLine % kPiece == 0 && kThreads % kPieces == 0 && kRows % kStep == 0 && kEach >= 1);
  static __device__ __forceinline__ int row(int i) { return static_cast<int>(threadIdx.x) / kPieces + i * kStep; }
  static __device__ __forceinline__ int column() { return static_cast<int>(threadIdx.x) % kPieces * kPiece; }
  static __device__ __forceinline__ S* at(S* tile, int i) { return tile + row(i) * kPitch + column(); }
};

template <class S>
__device__ __forceinline__ void copy_piece(S* to, const S* from, bool valid, const S* readable) {
  copy_async_16(to, valid ? from : readable, valid ? 16 : 0);
}
template <class S>
__device__ __forceinline__ void copy_element(S* to, const S* from, bool valid) {
  *to = valid ? *from : from_float<S>(0);
}

// Rows are places, a line runs along (tap, channel): the gathered operand of forward and of backward to the input.
template <class S, class Share>
class PlaceRows {
 public:
  __device__ __forceinline__ PlaceRows(const Window& window, const S* map, bool vector, int first_place)
      : window_(window), map_(map), vector_(vector) {
#pragma unroll
    for (int i = 0; i < Share::kEach; ++i) {
      const int number = first_place + Share::row(i);
      const Place place = window.place(number < window.places ? number : 0);
      y_[i] = number < window.places ? window.map_y(place) : kNowhere;
      x_[i] = window.map_x(place);
      offset_[i] = window.offset(place.image, window.map_y(place), x_[i]);
    }
  }

  __device__ __forceinline__ void load(S* tile, int depth, int end) const {
    if (vector_) {
      load_part<Share::kPiece>(tile, depth + Share::column(), end, 0);
    } else {
      for (int e = 0; e < Share::kPiece; ++e) load_part<1>(tile, depth + Share::column() + e, end, e);
    }
  }

 private:
  static constexpr int kNowhere = -(1 << 30);

  template <int kElements>
  __device__ __forceinline__ void load_part(S* tile, int at, int end, int e) const {
    const Tap tap = tap_of(window_, at < end ? at : 0);
    const int down = window_.direction * tap.y, right = window_.direction * tap.x;
    const std::int64_t shift = std::int64_t{down * window_.map_w + right} * window_.channels + tap.channel;
#pragma unroll
    for (int i = 0; i < Share::kEach; ++i) {
      const bool valid = at < end && window_.inside(y_[i] + down, x_[i] + right);
      if constexpr (kElements == 1) {
        copy_element(Share::at(tile, i) + e, map_ + offset_[i] + shift, valid);
      } else {
        copy_piece(Share::at(tile, i), map_ + offset_[i] + shift, valid, map_);
      }
    }
  }

  const Window& window_;
  const S* map_;
  bool vector_;
  int y_[Share::kEach], x_[Share::kEach];
  std::int64_t offset_[Share::kEach];
};

// Rows are places, a line runs along (tap, channel) too, but here the rows move on and the line stays: the gathered operand of
// the gradient of the weights.
template <class S, class Share>
class TapLines {
 public:
  __device__ __forceinline__ TapLines(const Window& window, const S* map, bool vector, int first_line)
      : window_(window), map_(map), vector_(vector), line_(first_line + Share::column()), tap_(window, line_) {}

  __device__ __forceinline__ void load(S* tile, int first_place, int end) const {
#pragma unroll
    for (int i = 0; i < Share::kEach; ++i) {
      const int number = first_place + Share::row(i);
      const Place place = window_.place(number < end ? number : 0);
      const int y = window_.map_y(place), x = window_.map_x(place);
      const S* corner = map_ + window_.offset(place.image, y, x);
      S* to = Share::at(tile, i);
      if (vector_) {
        copy_piece(to, corner + tap_.shift, number < end && tap_.valid && window_.inside(y + tap_.y, x + tap_.x), map_);
      } else {
        for (int e = 0; e < Share::kPiece; ++e) {
          const Shift tap(window_, line_ + e);
          copy_element(to + e, corner + tap.shift, number < end && tap.valid && window_.inside(y + tap.y, x + tap.x));
        }
      }
    }
  }

 private:
  struct Shift {
    bool valid;
    int y, x;
    std::int64_t shift;
    __device__ __forceinline__ Shift(const Window& window, int line) : valid(line < window.depth) {
      const Tap tap = tap_of(window, valid ? line : 0);
      y = tap.y, x = tap.x;
      shift = std::int64_t{y * window.map_w + x} * window.channels + tap.channel;
    }
  };

  const Window& window_;
  const S* map_;
  bool vector_;
  int line_;
  Shift tap_;
};

// Rows and columns of a matrix [.., columns] as it lies: weights in forward, dy in the gradient of the weights.
template <class S, class Share>
class MatrixRows {
 public:
  __device__ __forceinline__ MatrixRows(const S* matrix, int columns, bool vector, int first_column)
      : matrix_(matrix), columns_(columns), column_(first_column + Share::column()), vector_(vector) {}

  __device__ __forceinline__ void load(S* tile, int first_row, int end) const {
#pragma unroll
    for (int i = 0; i < Share::kEach; ++i) {
      const int row = first_row + Share::row(i);
      const S* from = matrix_ + std::int64_t{row} * columns_ + column_;
      S* to = Share::at(tile, i);
      if (vector_) {
        copy_piece(to, from, row < end && column_ < columns_, matrix_);
      } else {
        for (int e = 0; e < Share::kPiece; ++e) copy_element(to + e, from + e, row < end && column_ + e < columns_);
      }
    }
  }

 private:
  const S* matrix_;
  int columns_, column_;
  bool vector_;
};

// Which taps of a kernel [kernel_h, kernel_w] a class of input pixels sees: first_y + ty * step, first_x + tx * step.
struct TapGrid {
  int kernel_w = 0, first_y = 0, first_x = 0, step = 1;
};

// Rows are input channels, a line runs along (tap, output channel): the weights [kh, kw, in, out] in backward to the input.
template <class S, class Share>
class WeightRows {
 public:
  __device__ __forceinline__ WeightRows(const Window& window, const TapGrid& grid, const S* weight, int in_channels, bool vector,
                                        int first_row)
      : window_(window), grid_(grid), weight_(weight), in_channels_(in_channels), first_row_(first_row), vector_(vector) {}

  __device__ __forceinline__ void load(S* tile, int depth, int end) const {
    if (vector_) {
      load_part<Share::kPiece>(tile, depth + Share::column(), end, 0);
    } else {
      for (int e = 0; e < Share::kPiece; ++e) load_part<1>(tile, depth + Share::column() + e, end, e);
    }
  }

 private:
  template <int kElements>
  __device__ __forceinline__ void load_part(S* tile, int at, int end, int e) const {
    const Tap tap = tap_of(window_, at < end ? at : 0);
    const int number = (grid_.first_y + tap.y * grid_.step) * grid_.kernel_w + grid_.first_x + tap.x * grid_.step;
#pragma unroll
    for (int i = 0; i < Share::kEach; ++i) {
      const int row = first_row_ + Share::row(i);
      const S* from = weight_ + (std::int64_t{number} * in_channels_ + row) * window_.channels + tap.channel;
      const bool valid = at < end && row < in_channels_;
      if constexpr (kElements == 1) {
        copy_element(Share::at(tile, i) + e, from, valid);
      } else {
        copy_piece(Share::at(tile, i), from, valid, weight_);
      }
    }
  }

  const Window& window_;
  const TapGrid& grid_;
  const S* weight_;
  int in_channels_, first_row_;
  bool vector_;
};

}  // namespace engine::kernels::cuda
