// Differences between snapshots: bits, tolerances, missing arrays, minorities; and that a difference is never overlooked.
#include "io/checkpoint/compare_arrays.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace {

using Arrays = std::vector<io::NamedArray>;

io::NamedArray array(const std::string& name, const std::vector<float>& values, io::Section section = io::Section::kParameter) {
  io::NamedArray a{name, section, io::ArrayType::kF32, {static_cast<std::int64_t>(values.size())}, "cpu:0", {}};
  a.data.resize(values.size() * sizeof(float));
  std::memcpy(a.data.data(), values.data(), a.data.size());
  return a;
}

io::Comparison compare(const std::vector<Arrays>& files, const io::CompareOptions& options = {}) {
  std::vector<const Arrays*> pointers;
  for (const Arrays& file : files) pointers.push_back(&file);
  return io::compare_arrays(pointers, options);
}

bool differ(float a, float b, const io::CompareOptions& options = {}) {
  return !compare({{array("w", {0, a})}, {array("w", {0, b})}}, options).differences.empty();
}

TEST(CompareArrays, BitByBitByDefault) {
  const float nan = std::nanf("1");
  EXPECT_FALSE(differ(1, 1));
  EXPECT_FALSE(differ(nan, nan));
  EXPECT_TRUE(differ(nan, 1));
  EXPECT_TRUE(differ(0.0f, -0.0f));
  EXPECT_TRUE(differ(1, std::nextafter(1.0f, 2.0f)));
}

TEST(CompareArrays, Tolerances) {
  const float nan = std::nanf("1"), infinity = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(differ(1, 1.05f, {.absolute = 0.1}));
  EXPECT_TRUE(differ(1, 1.2f, {.absolute = 0.1}));
  EXPECT_FALSE(differ(100, 101, {.relative = 0.01}));
  EXPECT_TRUE(differ(100, 102, {.relative = 0.01}));
  EXPECT_FALSE(differ(1, std::nextafter(1.0f, 2.0f), {.ulp = 1}));
  EXPECT_FALSE(differ(-0.0f, std::numeric_limits<float>::denorm_min(), {.ulp = 1}));
  EXPECT_TRUE(differ(1, 1.001f, {.ulp = 1}));
  EXPECT_TRUE(differ(nan, 1, {.absolute = 1e30}));
  EXPECT_TRUE(differ(1, nan, {.relative = 1e30}));
  EXPECT_TRUE(differ(1, infinity, {.absolute = 1e30}));
  EXPECT_FALSE(differ(nan, std::nanf("2"), {.absolute = 1}));
}

TEST(CompareArrays, ReportsSizeAndPlaceOfTheDifference) {
  const auto result = compare({{array("w", {1, 2, 3, 4})}, {array("w", {1, 2.5f, 3, 2})}});
  EXPECT_EQ(result.compared, 1);
  ASSERT_EQ(result.differences.size(), 1u);
  const io::ArrayDifference& d = result.differences[0];
  EXPECT_EQ(d.name, "w");
  EXPECT_EQ(d.reason, "values");
  EXPECT_EQ(d.max_absolute, 2);
  EXPECT_EQ(d.first_index, 1);
  EXPECT_EQ(d.type, "f32");
  EXPECT_EQ(d.shape, "[4]");
  EXPECT_EQ(d.minority, std::vector<int>{1});
}

TEST(CompareArrays, AnInfiniteDifferenceIsSeen) {
  const float nan = std::nanf("1");
  const auto result = compare({{array("w", {1, 2})}, {array("w", {nan, 3})}});
  ASSERT_EQ(result.differences.size(), 1u);
  EXPECT_TRUE(std::isnan(result.differences[0].max_absolute));
}

TEST(CompareArrays, MissingShapeAndType) {
  io::NamedArray integers = array("t", {1, 2});
  integers.type = io::ArrayType::kI32;
  const auto result =
      compare({{array("m", {1}), array("s", {1, 2}), array("t", {1, 2})}, {array("s", {1}), integers, array("extra", {1})}});
  ASSERT_EQ(result.differences.size(), 4u);
  EXPECT_EQ(result.differences[0].reason, "missing");
  EXPECT_EQ(result.differences[1].reason, "shape");
  EXPECT_EQ(result.differences[2].reason, "type");
  EXPECT_EQ(result.differences[3].name, "extra");
  EXPECT_EQ(result.differences[3].reason, "missing");
}

TEST(CompareArrays, TheMinorityIsNamed) {
  const auto result = compare({{array("w", {1})}, {array("w", {2})}, {array("w", {2})}, {}});
  ASSERT_EQ(result.differences.size(), 1u);
  EXPECT_EQ(result.differences[0].minority, (std::vector<int>{0, 3}));
}

TEST(CompareArrays, SectionsAndGlobsSelect) {
  const Arrays one{array("w", {1}), array("bn.running_mean", {1}, io::Section::kBuffer),
                   array("w", {1}, io::Section::kOptimizer)};
  const Arrays other{array("w", {2}), array("bn.running_mean", {2}, io::Section::kBuffer),
                     array("w", {2}, io::Section::kOptimizer)};
  EXPECT_EQ(compare({one, other}).differences.size(), 2u);  // optimizer states only when asked for
  EXPECT_EQ(compare({one, other}, {.sections = {io::Section::kOptimizer}}).differences.size(), 1u);
  EXPECT_EQ(compare({one, other}, {.ignore = {"*.running_*"}}).differences.size(), 1u);
}

TEST(CompareArrays, Globs) {
  EXPECT_TRUE(io::glob_matches("*", ""));
  EXPECT_TRUE(io::glob_matches("layer?.*.weight", "layer3.16.conv.weight"));
  EXPECT_TRUE(io::glob_matches("a*b*c", "aXbXbXc"));
  EXPECT_FALSE(io::glob_matches("a*b", "abc"));
  EXPECT_FALSE(io::glob_matches("", "x"));
  EXPECT_FALSE(io::glob_matches("?", ""));
}

}  // namespace
