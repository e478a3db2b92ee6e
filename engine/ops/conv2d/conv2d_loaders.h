// What brings convolution's operands into shared memory, a tile at a time. A tile is kRows rows of
// kLine consecutive elements, kPitch apart; a thread takes the same 16-byte piece of every
// (kThreads / kPieces)-th row. Where every piece lies in one run of channels and is aligned
// (`vector`) it comes by an asynchronous copy, else element by element. What is outside is zero.
#pragma once

#include "engine/ops/conv2d/conv2d_window.h"
#include "engine/ops/device/device_code.h"

namespace engine::ops::cuda {

// Who copies what of a tile.
template <class S, int kRows, int kLine, int kPitch, int kThreads>
struct TileShare {
  static constexpr int kPiece = 16 / static_cast<int>(sizeof(S)), kPieces = kLine / kPiece,
                       kStep = kThreads / kPieces, kEach = kRows / kStep;
  static_assert(kLine % kPiece == 0 && kThreads % kPieces == 0 && kRows % kStep == 0 && kEach >= 1);
  static __device__ __forceinline__ int row(int i) {
    return static_cast<int>(threadIdx.x) / kPieces + i * kStep;
  }
  static __device__ __forceinline__ int column() {
    return static_cast<int>(threadIdx.x) % kPieces * kPiece;
  }
  static __device__ __forceinline__ S* at(S* tile, int i) {
    return tile + row(i) * kPitch + column();
  }
};

// Nothing is read where it is not valid.
template <class S>
__device__ __forceinline__ void copy_piece(S* to, const S* from, bool valid) {
  copy_async_16(to, from, valid ? 16 : 0);
}

// The same pieces of each of a thread's rows element by element: floats as asynchronous copies of 4
// bytes, smaller ones through registers, kTogether of each row at a time, all read before the first
// is written (more would cost the fast path registers).
template <class S, class Share>
class Elements {
 public:
  static constexpr int kTogether = 2;

  __device__ __forceinline__ explicit Elements(S* tile) : tile_(tile) {}
  // Calls each(e, copy) for every element e of a piece, which calls copy(i, address, whether it is
  // there) for every row i.
  template <class Each>
  __device__ __forceinline__ void run(const Each& each) {
#pragma unroll 1
    for (int first = 0; first < Share::kPiece; first += kTogether) {
#pragma unroll
      for (int e = 0; e < kTogether; ++e)
        each(first + e, [&](int i, const S* from, bool valid) {
          if constexpr (sizeof(S) == 4) {
            copy_async_4(Share::at(tile_, i) + first + e, from, valid ? 4 : 0);
          } else {
            few_[i].at[e] = valid ? *from : from_float<S>(0);
          }
        });
      if constexpr (sizeof(S) != 4) {
#pragma unroll
        for (int i = 0; i < Share::kEach; ++i)
          *reinterpret_cast<Few*>(Share::at(tile_, i) + first) = few_[i];
      }
    }
  }

 private:
  struct alignas(kTogether * sizeof(S)) Few {
    S at[kTogether];
  };
  S* tile_;
  Few few_[Share::kEach];
};

// Rows are places, a line runs along (tap, channel): the gathered operand of forward and of
// backward to the input.
template <class S, class Share>
class PlaceRows {
 public:
  __device__ __forceinline__ PlaceRows(const Window& window, const S* map, bool vector,
                                       int first_place)
      : window_(window), vector_(vector) {
#pragma unroll
    for (int i = 0; i < Share::kEach; ++i) {
      const int number = first_place + Share::row(i);
      const Place place = window.place(number < window.places ? number : 0);
      y_[i] = static_cast<short>(number < window.places ? window.map_y(place) : kNowhere);
      x_[i] = static_cast<short>(window.map_x(place));
      corner_[i] = map + window.offset(place.image, window.map_y(place), window.map_x(place));
    }
  }

  __device__ __forceinline__ void load(S* tile, int depth, int end) const {
    const int at = depth + Share::column();
    if (vector_) {
      each_row(at, end, [&](int i, const S* from, bool valid) {
        copy_piece(Share::at(tile, i), from, valid);
      });
      return;
    }
    Elements<S, Share>(tile).run([&](int e, const auto& copy) { each_row(at + e, end, copy); });
  }

 private:
  static constexpr int kNowhere = -32768;

  // Calls copy(i, address, whether it is there) for pair `at` of (tap, channel) in each of this
  // thread's rows.
  template <class Copy>
  __device__ __forceinline__ void each_row(int at, int end, const Copy& copy) const {
    const Tap tap = tap_of(window_, at < end ? at : 0);
    const int down = window_.direction * tap.y, right = window_.direction * tap.x;
    const int shift = (down * window_.map_w + right) * window_.channels + tap.channel;
#pragma unroll
    for (int i = 0; i < Share::kEach; ++i)
      copy(i, corner_[i] + shift, at < end && window_.inside(y_[i] + down, x_[i] + right));
  }

  const Window& window_;
  bool vector_;
  short y_[Share::kEach], x_[Share::kEach];  // two to a register
  const S* corner_[Share::kEach];            // where tap (0, 0) reads, in the map or not
};

// Rows are places, a line runs along (tap, channel) too, but here the rows move on and the line
// stays: the gathered operand of the gradient of the weights.
template <class S, class Share>
class TapLines {
 public:
  __device__ __forceinline__ TapLines(const Window& window, const S* map, bool vector,
                                      int first_line)
      : window_(window),
        map_(map),
        vector_(vector),
        line_(first_line + Share::column()),
        tap_(window, line_) {}

  __device__ __forceinline__ void load(S* tile, int first_place, int end) const {
    int y[Share::kEach], x[Share::kEach];
    const S* corner[Share::kEach];
#pragma unroll
    for (int i = 0; i < Share::kEach; ++i) {
      const int number = first_place + Share::row(i);
      const Place place = window_.place(number < end ? number : 0);
      y[i] = number < end ? window_.map_y(place) : kNowhere;
      x[i] = window_.map_x(place);
      corner[i] = map_ + window_.offset(place.image, window_.map_y(place), x[i]);
    }
    const auto there = [&](int i, const Shift& tap) {
      return tap.valid && window_.inside(y[i] + tap.y, x[i] + tap.x);
    };
    if (vector_) {
#pragma unroll
      for (int i = 0; i < Share::kEach; ++i)
        copy_piece(Share::at(tile, i), corner[i] + tap_.shift, there(i, tap_));
      return;
    }
    Elements<S, Share>(tile).run([&](int e, const auto& copy) {
      const Shift tap(window_, line_ + e);
#pragma unroll
      for (int i = 0; i < Share::kEach; ++i) copy(i, corner[i] + tap.shift, there(i, tap));
    });
  }

 private:
  struct Shift {
    bool valid;
    int y, x;
    int shift;
    __device__ __forceinline__ Shift(const Window& window, int line) : valid(line < window.depth) {
      const Tap tap = tap_of(window, valid ? line : 0);
      y = tap.y, x = tap.x;
      shift = (y * window.map_w + x) * window.channels + tap.channel;
    }
  };

  static constexpr int kNowhere = -(1 << 30);

  const Window& window_;
  const S* map_;
  bool vector_;
  int line_;
  Shift tap_;
};

// Rows and columns of a matrix [.., columns] as it lies: weights in forward, dy in the gradient of
// the weights.
template <class S, class Share>
class MatrixRows {
 public:
  __device__ __forceinline__ MatrixRows(const S* matrix, int columns, bool vector, int first_column)
      : start_(matrix + std::int64_t{Share::row(0)} * columns + first_column + Share::column()),
        columns_(columns),
        room_(columns - first_column - Share::column()),
        vector_(vector) {}

  __device__ __forceinline__ void load(S* tile, int first_row, int end) const {
    const S* corner = start_ + std::int64_t{first_row} * columns_;
    if (vector_) {
#pragma unroll
      for (int i = 0; i < Share::kEach; ++i)
        copy_piece(Share::at(tile, i), corner + std::int64_t{i * Share::kStep} * columns_,
                   first_row + Share::row(i) < end && room_ > 0);
      return;
    }
    Elements<S, Share>(tile).run([&](int e, const auto& copy) {
#pragma unroll
      for (int i = 0; i < Share::kEach; ++i)
        copy(i, corner + std::int64_t{i * Share::kStep} * columns_ + e,
             first_row + Share::row(i) < end && e < room_);
    });
  }

 private:
  const S* start_;      // this thread's place in the first row
  int columns_, room_;  // room_: columns from there to the end of a row
  bool vector_;
};

// Which taps of a kernel [kernel_h, kernel_w] a class of input pixels sees: first_y + ty * step,
// first_x + tx * step.
struct TapGrid {
  int kernel_w = 0, first_y = 0, first_x = 0, step = 1;
};

// Rows are input channels, a line runs along (tap, output channel): the weights [kh, kw, in, out]
// in backward to the input.
template <class S, class Share>
class WeightRows {
 public:
  __device__ __forceinline__ WeightRows(const Window& window, const TapGrid& grid, const S* weight,
                                        int in_channels, bool vector, int first_row)
      : window_(window),
        grid_(grid),
        weight_(weight),
        in_channels_(in_channels),
        first_row_(first_row),
        vector_(vector) {}

  __device__ __forceinline__ void load(S* tile, int depth, int end) const {
    const int at = depth + Share::column();
    if (vector_) {
      each_row(at, end, [&](int i, const S* from, bool valid) {
        copy_piece(Share::at(tile, i), from, valid);
      });
      return;
    }
    Elements<S, Share>(tile).run([&](int e, const auto& copy) { each_row(at + e, end, copy); });
  }

 private:
  template <class Copy>
  __device__ __forceinline__ void each_row(int at, int end, const Copy& copy) const {
    const Tap tap = tap_of(window_, at < end ? at : 0);
    const int number =
        (grid_.first_y + tap.y * grid_.step) * grid_.kernel_w + grid_.first_x + tap.x * grid_.step;
    const S* from =
        weight_ +
        (std::int64_t{number} * in_channels_ + first_row_ + Share::row(0)) * window_.channels +
        tap.channel;
#pragma unroll
    for (int i = 0; i < Share::kEach; ++i)
      copy(i, from + std::int64_t{i * Share::kStep} * window_.channels,
           at < end && first_row_ + Share::row(i) < in_channels_);
  }

  const Window& window_;
  const TapGrid& grid_;
  const S* weight_;
  int in_channels_, first_row_;
  bool vector_;
};

}  // namespace engine::ops::cuda
