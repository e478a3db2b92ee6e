// Names and sizes of the element types.
#include "io/base/numbers/element_type.h"

#include <gtest/gtest.h>

namespace {

using base::DType;

TEST(ElementType, EveryNameReadsBack) {
  for (const DType type : base::kDTypes) EXPECT_EQ(base::parse_dtype(to_string(type)), type);
  EXPECT_EQ(base::parse_dtype(""), std::nullopt);
  EXPECT_EQ(base::parse_dtype("?"), std::nullopt);
  EXPECT_EQ(base::parse_dtype("F32"), std::nullopt);
}

template <class T>
void expect_size() {
  EXPECT_EQ(base::size_of(base::DTypeOf<T>::value), sizeof(T));
}

TEST(ElementType, SizesAreThoseOfTheTypesInMemory) {
  expect_size<float>();
  expect_size<double>();
  expect_size<std::int64_t>();
  expect_size<std::int32_t>();
  expect_size<std::uint8_t>();
  expect_size<base::f16>();
  expect_size<base::bf16>();
}

}  // namespace
