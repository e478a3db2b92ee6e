// Divides parameters into fragments of whole layers of about equal size.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/core/parameter_buffer.h"
#include "engine/optim/optimizer_shards.h"
#include "io/base/numbers/part_bounds.h"

namespace engine {

// Returns the layers: consecutive tensors whose names are equal up to the last '.'. The ranges
// cover the buffer, gaps included.
std::vector<Elements> layers_of(const FlatBuffer& buffer);
// Returns consecutive fragments of whole layers whose largest is as small as possible. REQUIRES:
// 1 <= fragments <= the number of layers (Error).
std::vector<Elements> divide_layers(const FlatBuffer& buffer, std::int64_t fragments);
// Returns the largest number of fragments, at most `max_fragments` and the number of layers, none
// of which is more than twice as large as their mean.
std::int64_t choose_fragments(const FlatBuffer& buffer, std::int64_t max_fragments);

// Returns by how many steps the clock of fragment `f` of `fragments` is ahead of the first one's:
// the clocks are shifted by equal parts of the period of `every` steps.
inline std::int64_t fragment_offset(std::int64_t f, std::int64_t fragments, std::int64_t every) {
  return base::part_begin(every, f, fragments);
}

// Returns `fragments` of them or, if this is 0, the number that choose_fragments() returns.
std::vector<Elements> fragments_of(const FlatBuffer& buffer, std::int64_t fragments,
                                   std::int64_t max_fragments);

}  // namespace engine
