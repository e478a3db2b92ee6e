// Divides parameters into matrices that shrink and others.
#include "engine/averaging/low_rank/power_sgd_parts.h"

#include <algorithm>

#include "engine/averaging/math/flat_math.h"
#include "engine/core/error.h"
#include "engine/core/random.h"
#include "engine/ops/low_rank/low_rank_rules.h"

namespace engine {
namespace {

PowerSgdPart as_matrix(const NamedLayout& tensor, std::size_t index) {
  const Shape shape = tensor.layout.memory_shape();
  const std::int64_t count = shape.count(),
                     columns =
                         shape.rank() > 0 ? std::max<std::int64_t>(1, shape[shape.rank() - 1]) : 1;
  return {.tensor = index, .rows = count / columns, .columns = columns};
}

}  // namespace

PowerSgdParts power_sgd_parts(std::span<const NamedLayout> tensors, int rank) {
  require(rank >= 1, "PowerSGD needs a rank of 1 or more");
  PowerSgdParts parts;
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    const PowerSgdPart part = as_matrix(tensors[index], index);
    const bool shrinks = part.rows > 1 && part.columns > 1 &&
                         rank * (part.rows + part.columns) < part.rows * part.columns;
    (shrinks ? parts.matrices : parts.plain).push_back(part);
    if (shrinks)
      parts.factors.push_back({tensors[index].name, TensorLayout::plain(Shape{part.columns, rank}),
                               tensors[index].dtype});
  }
  for (PowerSgdPart& part : parts.plain) {
    part.packed = parts.packed;
    parts.packed += part.count();
  }
  for (PowerSgdPart& part : parts.matrices) {
    part.packed = parts.packed;
    parts.packed += part.rows * rank;
  }
  return parts;
}

PowerSgdParts power_sgd_parts(const FlatBuffer& gradients, int rank) {
  std::vector<NamedLayout> tensors;
  for (const FlatBuffer::Slot& slot : gradients.slots())
    tensors.push_back({slot.name, slot.layout, gradients.dtype()});
  return power_sgd_parts(tensors, rank);
}

std::uint64_t power_sgd_key(std::string_view parameter) { return stream_key(0, parameter); }

FlatBuffer first_power_sgd_factors(const FlatBuffer& gradients, int rank) {
  FlatBuffer factors(gradients.dtype(), power_sgd_parts(gradients, rank).factors);
  for (std::size_t slot = 0; slot < factors.slots().size(); ++slot)
    for (int column = 0; column < rank; ++column) draw_power_sgd_column(factors, slot, column);
  return factors;
}

void draw_power_sgd_column(const FlatBuffer& factors, std::size_t slot, int column) {
  const FlatBuffer::Slot& factor = factors.slots()[slot];
  const std::uint64_t key = power_sgd_key(factor.name);
  const Shape shape = factor.layout.memory_shape();
  with_element_type(factors.dtype(), [&]<class T>(T) {
    T* const values = factors.span<T>().data() + factor.offset;
    for (std::int64_t row = 0; row < shape[0]; ++row)
      values[row * shape[1] + column] = static_cast<T>(ops::low_rank_draw(
          philox(key, static_cast<std::uint64_t>(column), static_cast<std::uint64_t>(row))));
  });
}

std::size_t power_sgd_bytes(const FlatBuffer& gradients, int rank) {
  const PowerSgdParts parts = power_sgd_parts(gradients, rank);
  return static_cast<std::size_t>(parts.packed) * size_of(gradients.dtype()) +
         FlatBuffer(gradients.dtype(), parts.factors).bytes();
}

std::string power_sgd_note(int rank) { return " (PowerSGD rank " + std::to_string(rank) + ")"; }

}  // namespace engine
