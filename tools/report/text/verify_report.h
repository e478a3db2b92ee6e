// Formats the output of `engine verify`: names, a table or JSON, and a one-line summary.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/interchange/compare/compare_arrays.h"

namespace tools {

// Returns at most `most` differences (0: all), as one string to print. `format`: names, table,
// json. `paths`: the compared files.
std::string differences_text(const io::Comparison& comparison, const std::string& format,
                             std::int64_t most, const std::vector<std::string>& paths);

// Returns e.g. "310 of 880 tensors differ (0 parameters, 310 BatchNorm running statistics); in sync
// except BN: try --sync-bn".
std::string verdict(const io::Comparison& comparison);

// Returns e.g. "2 tensors hold NaN or infinity: fc.weight, fc.bias (b.ckpt)": the first few, with
// their files if not all files have it; "" if there are none.
std::string not_finite_text(const io::Comparison& comparison,
                            const std::vector<std::string>& paths);

}  // namespace tools
