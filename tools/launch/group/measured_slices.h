// Measures the links between hosts, and divides the sums of all-reduces by them (--slices
// measured).
#pragma once

#include "backends/group.h"

namespace tools {

// Collective; rank 0 decides and prints one line. Sets Group::divide_sums() on every rank. Measures
// all pairs of up to kMaxMeasuredHosts hosts in rounds of about 1 s, pairs of a round at the same
// time, as in an all-reduce; a round that begins later than 60 s is not measured, and slices stay
// equal. Throws PeerError that names the pair whose link failed.
void divide_sums_by_rates(backends::Group& group);
inline constexpr std::size_t kMaxMeasuredHosts = 16;

}  // namespace tools
