// Fills a set from the seeded generator.
#include "io/data/sources/synthetic.h"

#include <cstddef>

#include "io/base/numbers/split_mix.h"

namespace io {

Dataset draw_synthetic(const std::array<std::int64_t, 3>& shape, std::int64_t classes,
                       std::int64_t count, std::uint64_t seed, std::uint64_t stream) {
  Dataset set;
  set.name = "synthetic";
  set.shape = shape;
  set.classes = classes;
  set.samples.resize(static_cast<std::size_t>(count * set.sample_count()));
  set.labels.resize(static_cast<std::size_t>(count));
  SplitMix bytes(seed, 2 * stream), labels(seed, 2 * stream + 1);
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < set.samples.size(); ++i) {
    word = i % 8 == 0 ? bytes.next() : word >> 8;
    set.samples[i] = static_cast<std::uint8_t>(word);
  }
  for (std::int32_t& label : set.labels)
    label = static_cast<std::int32_t>(labels.below(static_cast<std::uint32_t>(classes)));
  return set;
}

Dataset draw_synthetic_tokens(std::int64_t context, std::int64_t vocabulary, std::int64_t count,
                              std::uint64_t seed, std::uint64_t stream) {
  Dataset set;
  set.kind = SampleKind::kTokens;
  set.name = "synthetic";
  set.shape = {context, 1, 1};
  set.classes = vocabulary;
  set.stride = context;
  set.tokens.resize(static_cast<std::size_t>(count * context + 1));
  SplitMix ids(seed, 2 * stream);
  for (std::int32_t& token : set.tokens)
    token = static_cast<std::int32_t>(ids.below(static_cast<std::uint32_t>(vocabulary)));
  return set;
}

}  // namespace io
