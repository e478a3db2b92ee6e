// Moments, elementwise sums and the tree over ranks.
#include "engine/averaging/sums/ordered_tree.h"

#include <algorithm>
#include <cstring>

#include "engine/core/error.h"

namespace engine {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;  // of each rank: a world of 8 holds 8 MiB

template <class T>
void add(T* __restrict into, const T* __restrict from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) into[i] += from[i];
}

}  // namespace

void merge_moments(std::span<double> into, std::span<const double> from) {
  const double own = into[0], other = from[0];
  if (other == 0) return;
  if (own == 0) {
    std::ranges::copy(from, into.begin());
    return;
  }
  const std::size_t channels = (into.size() - 1) / 2;
  const double weight = other / (own + other);
  for (std::size_t c = 1; c <= channels; ++c) {
    const double difference = from[c] - into[c];
    into[c] += difference * weight;
    into[channels + c] += from[channels + c] + difference * difference * (own * weight);
  }
  into[0] = own + other;
}

void add_elements(DType dtype, void* into, const void* from, std::size_t count) {
  require(dtype == DType::kF32 || dtype == DType::kF64, "only f32 and f64 are summed in order");
  if (dtype == DType::kF32) {
    add(static_cast<float*>(into), static_cast<const float*>(from), count);
  } else {
    add(static_cast<double*>(into), static_cast<const double*>(from), count);
  }
}

TreeSum::TreeSum(backends::Communicator& communicator) : communicator_(communicator) {
  if (communicator.world_size() > 1)
    parts_.resize(kBlockBytes * static_cast<std::size_t>(communicator.world_size()));
}

void TreeSum::sum(DType dtype, void* data, std::size_t count) {
  if (communicator_.world_size() == 1) return;
  const std::size_t element = size_of(dtype), most = kBlockBytes / element;
  for (std::size_t first = 0; first < count; first += most) {
    const std::size_t here = std::min(most, count - first), bytes = here * element;
    std::byte* own = static_cast<std::byte*>(data) + first * element;
    communicator_.all_gather(own, bytes, parts_.data());
    fold_tree(static_cast<std::size_t>(communicator_.world_size()), [&](std::size_t into,
                                                                        std::size_t from) {
      add_elements(dtype, parts_.data() + into * bytes, parts_.data() + from * bytes, here);
    });
    std::memcpy(own, parts_.data(), bytes);
  }
}

}  // namespace engine
