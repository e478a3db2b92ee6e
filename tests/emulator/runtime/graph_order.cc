// A topological order: each time by chance one of the nodes that wait for no other.
#include "tests/emulator/runtime/graph_order.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>
#include <utility>

namespace fake {

bool is_joined(const GraphEdges& after, const std::vector<std::size_t>& ends) {
  std::vector<bool> is_followed(after.size(), false);
  for (const std::vector<std::size_t>& before : after)
    for (const std::size_t node : before) is_followed[node] = true;
  for (const std::size_t node : ends) is_followed[node] = true;
  return std::ranges::find(is_followed, false) == is_followed.end();
}

std::vector<std::size_t> replay_order(const GraphEdges& after, std::uint64_t replay) {
  std::vector<std::size_t> order(after.size());
  const char* seed = std::getenv("ENGINE_EMULATED_GRAPH_SEED");
  if (seed == nullptr) {
    std::iota(order.begin(), order.end(), std::size_t{0});
    return order;
  }
  std::mt19937_64 random(std::strtoull(seed, nullptr, 10) * 1'000'003 + replay);
  std::vector<std::size_t> missing, ready;  // missing: how many are still to come before each
  GraphEdges next(after.size());
  for (std::size_t node = 0; node < after.size(); ++node) {
    missing.push_back(after[node].size());
    if (after[node].empty()) ready.push_back(node);
    for (const std::size_t before : after[node]) next[before].push_back(node);
  }
  for (std::size_t& place : order) {
    std::swap(ready[random() % ready.size()], ready.back());
    place = ready.back();
    ready.pop_back();
    for (const std::size_t node : next[place])
      if (--missing[node] == 0) ready.push_back(node);
  }
  return order;
}

}  // namespace fake
