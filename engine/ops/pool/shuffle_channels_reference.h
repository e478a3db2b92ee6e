// Implements channel shuffles in plain loops over rows. Contract: shuffle_channels.h.
#pragma once

#include <cstdint>

#include "engine/ops/common/rows.h"
#include "engine/ops/pool/shuffle_channels.h"

namespace engine::ops::reference {

// Computes rows [first, last).
template <class T>
void shuffle_channels(const ShuffleChannels& o, std::int64_t first, std::int64_t last) {
  const std::int64_t channels = row_sizes(o.x).width, size = channels / o.groups;
  const T* x = o.x.as<T>() + first * channels;
  T* y = o.y.as<T>() + first * channels;
  for (std::int64_t row = first; row < last; ++row, x += channels) {
    for (std::int64_t i = 0; i < size; ++i) {
      for (std::int64_t group = 0; group < o.groups; ++group, ++y)
        *y = o.write == Write::kAdd ? *y + x[group * size + i] : x[group * size + i];
    }
  }
}

}  // namespace engine::ops::reference
