// Fills a set from the seeded generator.
#include "io/data/readers/drawn/synthetic.h"

#include <cstddef>
#include <utility>

#include "io/base/numbers/split_mix.h"

namespace io {

Dataset draw_synthetic(const std::array<std::int64_t, 3>& shape, std::int64_t classes,
                       std::int64_t count, std::uint64_t seed, std::uint64_t stream) {
  ImageSamples images{.format = {.shape = shape}};
  images.pixels.resize(static_cast<std::size_t>(count * images.format.count()));
  ClassLabels labels{.count = classes};
  labels.ids.resize(static_cast<std::size_t>(count));
  SplitMix bytes(seed, 2 * stream), classes_drawn(seed, 2 * stream + 1);
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < images.pixels.size(); ++i) {
    word = i % 8 == 0 ? bytes.next() : word >> 8;
    images.pixels[i] = static_cast<std::uint8_t>(word);
  }
  for (std::int32_t& label : labels.ids)
    label = static_cast<std::int32_t>(classes_drawn.below(static_cast<std::uint32_t>(classes)));
  return {.name = "synthetic", .samples = std::move(images), .labels = std::move(labels)};
}

Dataset draw_synthetic_tokens(std::int64_t context, std::int64_t vocabulary, std::int64_t count,
                              std::uint64_t seed, std::uint64_t stream) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count * context + 1));
  SplitMix ids(seed, 2 * stream);
  for (std::int32_t& token : tokens)
    token = static_cast<std::int32_t>(ids.below(static_cast<std::uint32_t>(vocabulary)));
  return {
      .name = "synthetic",
      .samples = TokenSamples{.context = context, .stride = context, .tokens = std::move(tokens)},
      .labels = NextTokens{.count = vocabulary}};
}

}  // namespace io
