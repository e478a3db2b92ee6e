// Determines which parameters PowerSGD sends as factors, and draws the first factors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/parameter_buffer.h"

namespace engine {

// A matrix view of one parameter: its columns are the last dimension in memory. For convolutions
// (HWIO) that is the transpose of the papers' [out, in * height * width].
struct PowerSgdPart {
  std::size_t tensor = 0;  // slot of the gradients
  std::int64_t rows = 1, columns = 1;
  std::int64_t packed = 0;  // place of its elements, or of P [rows, rank]

  std::int64_t count() const { return rows * columns; }
};

// All ranks have the same parts. `plain` are sent uncompressed: vectors, and matrices that would
// not shrink. Packed are the elements of these, then P of every matrix.
struct PowerSgdParts {
  std::vector<PowerSgdPart> matrices, plain;
  std::int64_t packed = 0;
  std::vector<NamedLayout> factors;  // Q [columns, rank] of every matrix
};
PowerSgdParts power_sgd_parts(std::span<const NamedLayout> tensors, int rank);
PowerSgdParts power_sgd_parts(const FlatBuffer& gradients, int rank);

// Returns the key of the numbers of a parameter's first factor.
std::uint64_t power_sgd_key(std::string_view parameter);
// Returns Q of every matrix, the same on every rank.
FlatBuffer first_power_sgd_factors(const FlatBuffer& gradients, int rank);
// Draws a column of the factor of `part`, in host memory.
void draw_power_sgd_column(const FlatBuffer& factors, std::size_t slot, int column);

// Returns the bytes that a rank sends in a step.
std::size_t power_sgd_bytes(const FlatBuffer& gradients, int rank);
std::string power_sgd_note(int rank);  // as GradientSum::note()

}  // namespace engine
