// The extents of a tensor: up to eight dimensions, outermost first, stored in place without
// allocation.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace engine {

class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() = default;                                // rank 0: a scalar, count() == 1
  Shape(std::initializer_list<std::int64_t> dims);  // throws ShapeError beyond kMaxRank or below 0
  explicit Shape(std::span<const std::int64_t> dims);

  int rank() const { return rank_; }
  std::int64_t operator[](int i) const { return dims_[static_cast<std::size_t>(i)]; }
  std::int64_t& operator[](int i) { return dims_[static_cast<std::size_t>(i)]; }
  std::int64_t count() const;  // product of the extents
  std::span<const std::int64_t> dims() const {
    return {dims_.data(), static_cast<std::size_t>(rank_)};
  }

  Shape with_batch(std::int64_t n) const;  // {n, this...}
  std::string to_string() const;           // "[100, 28, 28, 1]"

  bool operator==(const Shape& other) const;

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

}  // namespace engine
