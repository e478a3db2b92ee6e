// Which nodes of a captured graph wait for which, and the orders in which a device may run them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fake {

using GraphEdges =
    std::vector<std::vector<std::size_t>>;  // for each node those that come before it

// Whether each node comes before one of `ends`, the last ones of the stream that captures, or is
// one of them.
bool is_joined(const GraphEdges& after, const std::vector<std::size_t>& ends);

// The order in which they were issued; with ENGINE_EMULATED_GRAPH_SEED=N any that the edges allow,
// decided by N and the number of the replay.
std::vector<std::size_t> replay_order(const GraphEdges& after, std::uint64_t replay);

}  // namespace fake
