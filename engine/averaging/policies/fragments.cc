// Cuts a sequence of layers so that the largest part is as small as possible.
#include "engine/averaging/policies/fragments.h"

#include <algorithm>
#include <limits>
#include <string_view>

namespace engine {
namespace {

// The best cuts of the first layers, by dynamic programming: at(n, i) is the smallest possible size
// of the largest of n fragments of the first i layers.
class LayerCuts {
 public:
  LayerCuts(const std::vector<Elements>& layers, std::size_t max_fragments)
      : layers_(layers), width_(layers.size() + 1), rows_(max_fragments + 1) {
    largest_.assign(rows_ * width_, std::numeric_limits<std::int64_t>::max());
    last_begin_.assign(rows_ * width_, 0);
    largest_[0] = 0;
    for (std::size_t n = 1; n < rows_; ++n)
      for (std::size_t end = n; end < width_; ++end) choose(n, end);
  }

  std::int64_t largest(std::size_t fragments) const {
    return largest_[fragments * width_ + layers_.size()];
  }
  std::vector<Elements> cut(std::size_t fragments) const {
    std::vector<Elements> parts(fragments);
    std::size_t end = layers_.size();
    for (std::size_t n = fragments; n > 0; --n) {
      const std::size_t begin = last_begin_[n * width_ + end];
      parts[n - 1] = {.first = layers_[begin].first, .count = size(begin, end)};
      end = begin;
    }
    return parts;
  }

 private:
  std::int64_t size(std::size_t begin, std::size_t end) const {
    return layers_[end - 1].first + layers_[end - 1].count - layers_[begin].first;
  }
  void choose(std::size_t n, std::size_t end) {
    std::int64_t& best = largest_[n * width_ + end];
    for (std::size_t begin = n - 1; begin < end; ++begin) {
      const std::int64_t before = largest_[(n - 1) * width_ + begin];
      const std::int64_t larger = std::max(before, size(begin, end));
      if (larger >= best) continue;
      best = larger;
      last_begin_[n * width_ + end] = begin;
    }
  }

  const std::vector<Elements>& layers_;
  const std::size_t width_, rows_;
  std::vector<std::int64_t> largest_;
  std::vector<std::size_t> last_begin_;
};

}  // namespace

std::vector<Elements> layers_of(const FlatBuffer& buffer) {
  std::vector<Elements> layers;
  std::string_view layer;
  const auto slots = buffer.slots();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const std::string_view name = slots[i].name;
    const std::string_view of_slot = name.substr(0, name.rfind('.'));
    const std::int64_t end = i + 1 < slots.size() ? slots[i + 1].offset : buffer.size();
    if (layers.empty() || of_slot != layer) layers.push_back({.first = slots[i].offset});
    layers.back().count = end - layers.back().first;
    layer = of_slot;
  }
  return layers;
}

std::vector<Elements> divide_layers(const FlatBuffer& buffer, std::int64_t fragments) {
  const std::vector<Elements> layers = layers_of(buffer);
  const auto count = static_cast<std::size_t>(fragments);
  require(fragments >= 1 && count <= layers.size(), "more fragments than layers");
  return LayerCuts(layers, count).cut(count);
}

std::int64_t choose_fragments(const FlatBuffer& buffer, std::int64_t max_fragments) {
  const std::vector<Elements> layers = layers_of(buffer);
  auto most = static_cast<std::int64_t>(layers.size());
  most = std::min(most, max_fragments);
  const LayerCuts cuts(layers, static_cast<std::size_t>(most));
  for (std::int64_t n = most; n > 1; --n)
    if (cuts.largest(static_cast<std::size_t>(n)) * n <= 2 * buffer.size()) return n;
  return 1;
}

std::vector<Elements> fragments_of(const FlatBuffer& buffer, std::int64_t fragments,
                                   std::int64_t max_fragments) {
  return divide_layers(buffer, fragments > 0 ? fragments : choose_fragments(buffer, max_fragments));
}

}  // namespace engine
