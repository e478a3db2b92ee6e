// The initial weights of the stored loss traces: the same numbers as parity_weights.py makes (the
// formula is there).
#pragma once

#include <string>

namespace parity {

// Writes `path` as a safetensors file for a model of tests/models/state_dicts.txt. Throws
// std::runtime_error when it cannot.
void write_initial_weights(const std::string& model, const std::string& path);

}  // namespace parity
