// Implements channel padding in plain loops over rows, as the reference for tests. Contract:
// pad_channels.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/ops/common/rows.h"
#include "engine/ops/pool/pad_channels.h"

namespace engine::ops::reference {

// Computes rows [first, last).
template <class T>
void pad_channels_forward(const PadChannelsForward& o, std::int64_t first, std::int64_t last) {
  const std::int64_t channels = row_sizes(o.x).width, padded = row_sizes(o.y).width;
  const T* x = o.x.as<T>() + first * channels;
  T* y = o.y.as<T>() + first * padded;
  for (std::int64_t row = first; row < last; ++row, x += channels, y += padded) {
    std::fill_n(y, o.before, T{0});
    std::copy_n(x, channels, y + o.before);
    std::fill_n(y + o.before + channels, padded - o.before - channels, T{0});
  }
}

template <class T>
void pad_channels_backward(const PadChannelsBackward& o, std::int64_t first, std::int64_t last) {
  const std::int64_t channels = row_sizes(o.dx).width, padded = row_sizes(o.dy).width;
  const T* dy = o.dy.as<T>() + first * padded + o.before;
  T* dx = o.dx.as<T>() + first * channels;
  for (std::int64_t row = first; row < last; ++row, dx += channels, dy += padded) {
    for (std::int64_t c = 0; c < channels; ++c)
      dx[c] = o.write == Write::kAdd ? dx[c] + dy[c] : dy[c];
  }
}

}  // namespace engine::ops::reference
