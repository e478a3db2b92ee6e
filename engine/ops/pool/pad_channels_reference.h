// What padding of channels means: plain loops over rows. Contract: pad_channels.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/ops/common/kernel_context.h"

namespace engine::ops::reference {

template <class T>
void pad_channels_forward(const T* x, std::int64_t rows, std::int64_t channels, std::int64_t before,
                          std::int64_t padded, T* y) {
  for (std::int64_t row = 0; row < rows; ++row, x += channels, y += padded) {
    std::fill_n(y, before, T{0});
    std::copy_n(x, channels, y + before);
    std::fill_n(y + before + channels, padded - before - channels, T{0});
  }
}

template <class T>
void pad_channels_backward(const T* dy, std::int64_t rows, std::int64_t channels,
                           std::int64_t before, std::int64_t padded, T* dx, Write write) {
  for (std::int64_t row = 0; row < rows; ++row, dx += channels, dy += padded) {
    for (std::int64_t c = 0; c < channels; ++c)
      dx[c] = write == Write::kAdd ? dx[c] + dy[before + c] : dy[before + c];
  }
}

}  // namespace engine::ops::reference
