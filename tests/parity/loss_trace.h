// Losses step by step: read from a stored trace or from a run's metrics, and compared.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace parity {

// A stored trace: one loss a line; lines that start with '#' are comments.
std::vector<double> read_trace(const std::string& path);

// The losses of the "step" events of a metrics file, in order. Throws std::runtime_error unless
// they are steps 1, 2, 3 ...
std::vector<double> read_step_losses(const std::string& path);

// The first of `steps` steps whose loss is not within `relative` of the expected one, as a
// sentence; nothing if all agree. A missing step and a NaN are differences.
std::optional<std::string> first_difference(const std::vector<double>& expected,
                                            const std::vector<double>& got, std::size_t steps,
                                            double relative);

// The same for float32 against the exact (float64) losses: allowed is five times the largest
// relative error that the peer's float32 makes in these steps, and 1e-6 in any case.
std::optional<std::string> first_stray(const std::vector<double>& exact,
                                       const std::vector<double>& peer,
                                       const std::vector<double>& got, std::size_t steps);

}  // namespace parity
