// Checks shapes, counts their elements and formats them.
#include "engine/core/shape.h"

#include <algorithm>

#include "engine/core/checked.h"
#include "engine/core/error.h"

namespace engine {

Shape::Shape(std::initializer_list<std::int64_t> dims)
    : Shape(std::span(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const std::int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  if (dims.size() > kMaxRank)
    throw ShapeError("a tensor has at most 8 dimensions, not " + std::to_string(dims.size()));
  for (std::int64_t d : dims)
    if (d < 0) throw ShapeError("a dimension is negative: " + std::to_string(d));
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

std::int64_t Shape::count() const {
  std::int64_t product = 1;
  for (std::int64_t d : dims()) product = checked_multiply(product, d);
  return product;
}

Shape Shape::with_batch(std::int64_t n) const {
  std::array<std::int64_t, kMaxRank + 1> dims{n};
  std::copy_n(dims_.begin(), rank_, dims.begin() + 1);
  return Shape(std::span<const std::int64_t>(dims.data(), static_cast<std::size_t>(rank_) + 1));
}

std::string Shape::to_string() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) text += (i ? ", " : "") + std::to_string((*this)[i]);
  return text + "]";
}

bool Shape::operator==(const Shape& other) const {
  return std::equal(dims().begin(), dims().end(), other.dims().begin(), other.dims().end());
}

}  // namespace engine
