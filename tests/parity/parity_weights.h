// The initial weights of the stored loss traces: the same numbers as parity_weights.py makes (the
// formula is there).
#pragma once

#include <string>

namespace parity {

// Writes `path` as a safetensors file for a model of tests/models/state_dicts.txt. With `nudge` > 0
// each value is the next float32 above or below, drawn by `nudge`. Throws std::runtime_error when
// it cannot.
void write_initial_weights(const std::string& model, const std::string& path, int nudge = 0);

}  // namespace parity
