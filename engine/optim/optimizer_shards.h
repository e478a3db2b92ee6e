// The assignment of parameters to ranks, if each rank updates a shard of them and has the
// optimizer's states only for that shard.
#pragma once

#include <cstdint>
#include <vector>

namespace engine {

struct Elements {  // a range of a flat buffer
  std::int64_t first = 0, count = 0;
};

struct OptimizerShards {
  int rank = 0;  // this rank
  // Ascending ranges of the parameters' values; each element belongs to one rank.
  std::vector<std::vector<Elements>> of_rank;

  const std::vector<Elements>& own() const { return of_rank[static_cast<std::size_t>(rank)]; }
};

inline std::int64_t count_of(const std::vector<Elements>& parts) {
  std::int64_t count = 0;
  for (const Elements& part : parts) count += part.count;
  return count;
}

}  // namespace engine
