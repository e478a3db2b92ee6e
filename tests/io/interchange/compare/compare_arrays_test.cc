// Differences between checkpoints: bits, tolerances, missing arrays, minorities; and that a
// difference is never overlooked.
#include "io/interchange/compare/compare_arrays.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/io/interchange/array_fixture.h"

namespace {

using array_fixture::Arrays;
using array_fixture::MemorySource;
using Names = std::vector<std::string>;

io::NamedArray array(const std::string& name, const std::vector<float>& values,
                     io::Section section = io::Section::kParameter) {
  return array_fixture::array_of<float>(name, values, section);
}

// sections: for each file whether it knows them; all do when shorter.
io::Comparison compare(const std::vector<Arrays>& files, const io::CompareOptions& options = {},
                       const std::vector<bool>& sections = {}) {
  std::vector<std::unique_ptr<MemorySource>> sources;
  std::vector<io::ArraySource*> pointers;
  for (std::size_t f = 0; f < files.size(); ++f) {
    const bool has = f >= sections.size() || sections[f];
    sources.push_back(std::make_unique<MemorySource>(files[f], has, has));
    pointers.push_back(sources.back().get());
  }
  io::Comparison result = io::compare_arrays(pointers, options);
  for (const auto& source : sources) EXPECT_EQ(source->finished, 1);
  return result;
}

Names names(const io::Comparison& comparison) {
  Names all;
  for (const io::ArrayDifference& d : comparison.differences) all.push_back(d.name);
  return all;
}

bool differ(float a, float b, const io::Tolerance& tolerance = {}) {
  return !compare({{array("w", {0, a})}, {array("w", {0, b})}}, {.tolerance = tolerance})
              .differences.empty();
}

template <class T>
bool differ_as(T a, T b, const io::Tolerance& tolerance = {}) {
  return !compare({{array_fixture::array_of<T>("w", {a})}, {array_fixture::array_of<T>("w", {b})}},
                  {.tolerance = tolerance})
              .differences.empty();
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
  EXPECT_TRUE(differ(1, infinity, {.relative = 0.1}));  // relative * infinity is no allowance
  EXPECT_TRUE(differ(infinity, 1, {.relative = 0.1}));
  EXPECT_TRUE(differ(infinity, -infinity, {.relative = 0.1}));
  EXPECT_TRUE(differ(infinity, std::numeric_limits<float>::max(), {.ulp = 1}));
  EXPECT_FALSE(differ(infinity, infinity, {.relative = 0.1}));
  EXPECT_FALSE(differ(nan, std::nanf("2"), {.absolute = 1}));
}

TEST(CompareArrays, ReportsSizeAndPlaceOfTheDifference) {
  const auto result = compare({{array("w", {1, 2, 3, 4})}, {array("w", {1, 2.5f, 3, 2})}});
  EXPECT_EQ(result.compared, 1);
  ASSERT_EQ(result.differences.size(), 1u);
  const io::ArrayDifference& d = result.differences[0];
  EXPECT_EQ(d.name, "w");
  EXPECT_EQ(d.reason, "values");
  EXPECT_EQ(d.values.max_absolute, 2);
  EXPECT_EQ(d.values.first_index, 1);
  EXPECT_EQ(d.type, "f32");
  EXPECT_EQ(d.shape, "[4]");
  EXPECT_EQ(d.minority, std::vector<int>{1});
}

TEST(CompareArrays, AnInfiniteDifferenceIsSeen) {
  const float nan = std::nanf("1");
  const auto result = compare({{array("w", {1, 2})}, {array("w", {nan, 3})}});
  ASSERT_EQ(result.differences.size(), 1u);
  EXPECT_TRUE(std::isnan(result.differences[0].values.max_absolute));
}

TEST(CompareArrays, MissingShapeAndType) {
  io::NamedArray integers = array("t", {1, 2});
  integers.type = base::DType::kI32;
  const auto result = compare({{array("m", {1}), array("s", {1, 2}), array("t", {1, 2})},
                               {array("s", {1}), integers, array("extra", {1})}});
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

TEST(CompareArrays, UlpsAreExactInDouble) {
  const auto up = [](double v, int steps) {
    return std::bit_cast<double>(std::bit_cast<std::int64_t>(v) + steps);
  };
  EXPECT_FALSE(differ_as(1.0, up(1.0, 3), {.ulp = 3}));
  EXPECT_TRUE(differ_as(1.0, up(1.0, 4), {.ulp = 3}));
  EXPECT_TRUE(differ_as(-1.0, 1.0, {.ulp = std::int64_t{1} << 62}));
  EXPECT_FALSE(differ_as(-0.0, 0.0, {.ulp = 1}));
  const auto apart = compare({{array_fixture::array_of<double>("w", {1.0})},
                              {array_fixture::array_of<double>("w", {up(1, 7)})}});
  EXPECT_EQ(apart.differences.at(0).values.max_ulp, 7);
}

TEST(CompareArrays, HalvesAreNumbers) {
  const std::uint16_t one = 0x3C00, next = 0x3C01, two = 0x4000, nan = 0x7E00, other_nan = 0x7E01;
  EXPECT_TRUE(differ_as(one, next));
  EXPECT_FALSE(differ_as(one, next, {.absolute = 0.001}));
  EXPECT_FALSE(differ_as(one, next, {.ulp = 1}));
  EXPECT_TRUE(differ_as(one, two, {.absolute = 0.5}));
  EXPECT_FALSE(differ_as(one, two, {.absolute = 1}));
  EXPECT_TRUE(differ_as(nan, other_nan));
  EXPECT_FALSE(differ_as(nan, other_nan, {.ulp = 1}));
  io::NamedArray a = array_fixture::array_of<std::uint16_t>("w", {0x3F80}),
                 b = array_fixture::array_of<std::uint16_t>("w", {0x3F90});
  a.type = b.type = base::DType::kBF16;  // 1 and 1.125
  EXPECT_EQ(compare({{a}, {b}}).differences.at(0).values.max_absolute, 0.125);
  EXPECT_EQ(compare({{a}, {b}}).differences.at(0).values.max_ulp, 16);
}

TEST(CompareArrays, IntegersAreComparedBitByBitWhateverTheTolerance) {
  EXPECT_TRUE(differ_as<std::int64_t>(5, 6, {.absolute = 10}));
  EXPECT_FALSE(differ_as<std::int64_t>(5, 5));
  EXPECT_TRUE(differ_as<std::int32_t>(-1, 1));
  EXPECT_TRUE(differ_as<std::uint8_t>(0, 255));
  EXPECT_EQ(compare({{array_fixture::array_of<std::uint8_t>("w", {0, 0, 9})},
                     {array_fixture::array_of<std::uint8_t>("w", {0, 0, 1})}})
                .differences.at(0)
                .values.max_absolute,
            8);
}

TEST(CompareArrays, ADifferenceInEveryBlockIsSeenOnceAndInItsPlace) {
  const std::size_t count = 400'000;  // several blocks, the last one broken
  const std::vector<float> same(count, 1);
  for (const std::size_t at : {std::size_t{0}, std::size_t{65'535}, std::size_t{65'536},
                               std::size_t{200'000}, count - 1}) {
    std::vector<float> other = same;
    other[at] = 3;
    const auto result = compare({{array("w", same)}, {array("w", other)}});
    ASSERT_EQ(result.differences.size(), 1u) << at;
    EXPECT_EQ(result.differences[0].values.first_index, static_cast<std::int64_t>(at));
    EXPECT_EQ(result.differences[0].values.max_absolute, 2);
  }
}

TEST(CompareArrays, ThreeAndMoreFiles) {
  const Arrays a{array("w", {1, 2})}, b{array("w", {1, 3})}, c{array("w", {1, 5})};
  EXPECT_TRUE(compare({a, a, a}).differences.empty());
  const auto minority = [](const std::vector<Arrays>& files,
                           const io::CompareOptions& options = {}) {
    return compare(files, options).differences.at(0).minority;
  };
  EXPECT_EQ(minority({a, a, b}), (std::vector<int>{2}));
  EXPECT_EQ(minority({a, b, a}), (std::vector<int>{1}));
  EXPECT_EQ(minority({b, a, a}), (std::vector<int>{0}));
  EXPECT_EQ(minority({a, b, c}), (std::vector<int>{1, 2}));
  EXPECT_EQ(minority({a, b, b, a}), (std::vector<int>{1, 2}));  // a tie: the first file's side wins
  EXPECT_EQ(minority({a, b, b, c, b}), (std::vector<int>{0, 3}));
  EXPECT_EQ(minority({a, {}, {}}), (std::vector<int>{0}));  // most do not have it
  EXPECT_EQ(minority({a, b, c}, {.tolerance = {.absolute = 1}}), (std::vector<int>{2}));
  EXPECT_EQ(compare({a, b, c}).differences.at(0).values.max_absolute, 3);
}

TEST(CompareArrays, OrderInTheFileDoesNotMatter) {
  const auto result = compare({{array("a", {1}), array("b", {2}), array("c", {3})},
                               {array("c", {3}), array("a", {1}), array("b", {9})}});
  EXPECT_EQ(result.compared, 3);
  EXPECT_EQ(names(result), Names{"b"});
}

TEST(CompareArrays, NamesComeInModelOrder) {
  const Arrays one{array("z", {1}), array("y", {1}), array("x", {1})},
      other{array("x", {2}), array("y", {2}), array("z", {2}), array("w", {1})};
  EXPECT_EQ(names(compare({one, other})), (Names{"z", "y", "x", "w"}));
  // A file that sorts its tensors does not decide, though it comes first.
  EXPECT_EQ(names(compare({other, one}, {}, {false, true})), (Names{"z", "y", "x", "w"}));
}

TEST(CompareArrays, FilesWithoutSectionsTakeThem) {
  const Arrays sectioned{array("w", {1}), array("bn.running_var", {1}, io::Section::kBuffer),
                         array("mask", {1}, io::Section::kBuffer)};
  EXPECT_TRUE(compare({sectioned, sectioned}, {}, {true, false}).differences.empty());
  EXPECT_TRUE(compare({sectioned, sectioned}, {}, {false, true}).differences.empty());
  EXPECT_EQ(compare({sectioned, sectioned}, {}, {false, true}).compared, 3);
  const auto plain = compare({sectioned, {}}, {}, {false, false});
  ASSERT_EQ(plain.differences.size(), 3u);
  EXPECT_EQ(plain.differences[1].section, io::Section::kBuffer);  // by its name
  EXPECT_EQ(plain.differences[2].section, io::Section::kParameter);
  EXPECT_EQ(names(compare({sectioned, {}}, {.sections = {io::Section::kBuffer}}, {true, false})),
            (Names{"bn.running_var", "mask"}));
}

TEST(CompareArrays, PrefixesAndNewNames) {
  const Arrays plain{array("fc.weight", {1}), array("fc2.weight", {2})};
  const Arrays wrapped{array("module.fc.weight", {1}), array("module.fc2.weight", {2})};
  EXPECT_EQ(compare({plain, wrapped}).differences.size(), 4u);
  EXPECT_TRUE(compare({plain, wrapped}, {.strip_prefix = {"module."}}).differences.empty());
  EXPECT_TRUE(compare({wrapped, plain}, {.strip_prefix = {"module."}}).differences.empty());
  EXPECT_TRUE(compare({plain, wrapped}, {.rename = {{"module.", ""}}}).differences.empty());
  const Arrays renamed{array("head.weight", {1}), array("fc2.weight", {2})};
  EXPECT_TRUE(compare({plain, renamed}, {.rename = {{"head", "fc"}}}).differences.empty());
  EXPECT_TRUE(
      compare({plain, renamed}, {.rename = {{"fc", "head"}}}).differences.empty());  // not fc2
  EXPECT_TRUE(
      compare({plain, renamed}, {.rename = {{"head.weight", "fc.weight"}}}).differences.empty());
  EXPECT_THROW(compare({plain, renamed}, {.rename = {{"fc2", "fc"}}}), io::DataError);
  EXPECT_TRUE(compare({plain, {array("a.b.fc.weight", {1}), array("a.b.fc2.weight", {2})}},
                      {.strip_prefix = {"a.", "b."}})
                  .differences.empty());
}

TEST(CompareArrays, MissingShapeAndTypeDifferWhateverTheTolerance) {
  io::NamedArray flat = array("w", {1, 2, 3, 4}), square = flat,
                 doubles = array_fixture::array_of<double>("w", {1, 2, 3, 4});
  square.shape = {2, 2};
  const io::CompareOptions lax{.tolerance = {.absolute = 1e30, .ulp = 1'000'000}};
  EXPECT_EQ(compare({{flat}, {square}}, lax).differences.at(0).reason, "shape");
  EXPECT_EQ(compare({{flat}, {doubles}}, lax).differences.at(0).reason, "type");
  EXPECT_EQ(compare({{flat}, {}}, lax).differences.at(0).reason, "missing");
  EXPECT_EQ(compare({{}, {flat}}, lax).differences.at(0).reason, "missing");
  EXPECT_EQ(compare({{}, {flat}}, lax).differences.at(0).type, "f32");
}

TEST(CompareArrays, EmptyArraysAndEmptyFiles) {
  EXPECT_TRUE(compare({{array("w", {})}, {array("w", {})}}).differences.empty());
  EXPECT_TRUE(compare({{}, {}}).differences.empty());
  io::NamedArray scalar = array("w", {1});
  scalar.shape = {};
  EXPECT_TRUE(compare({{scalar}, {scalar}}).differences.empty());
  EXPECT_EQ(compare({{scalar}, {array("w", {1})}}).differences.at(0).reason, "shape");
}

TEST(CompareArrays, SaysWhichTensorsAreNotFiniteInWhichFiles) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  const io::Comparison found =
      compare({{array("a", {1, nan}), array("b", {1, 2}), array("c", {3, 4}), array("d", {0, 1})},
               {array("a", {1, nan}), array("b", {inf, 2}), array("c", {3, 4}), array("d", {0, 2})},
               {array("a", {1, nan}), array("b", {1, 2}), array("c", {3, 4}), array("d", {0, 2})}});
  EXPECT_EQ(names(found), (Names{"b", "d"}));
  ASSERT_EQ(found.not_finite.size(), 2u);
  EXPECT_EQ(found.not_finite[0].name, "a");
  EXPECT_EQ(found.not_finite[0].files, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(found.not_finite[1].name, "b");
  EXPECT_EQ(found.not_finite[1].files, std::vector<int>{1});
}

TEST(CompareArrays, ConstantsOfAModelMayBeInfinite) {
  const float inf = std::numeric_limits<float>::infinity();
  const auto file = [&](io::Section section, const std::vector<float>& mask) {
    return Arrays{array("mask.value", mask, section), array("w", {1, inf}),
                  array("self.value", {inf, 2})};
  };
  const io::Comparison found =
      compare({file(io::Section::kBuffer, {0, -inf}), file(io::Section::kBuffer, {-inf, 0})});
  EXPECT_EQ(names(found), Names{"mask.value"});
  ASSERT_EQ(found.not_finite.size(), 2u);
  EXPECT_EQ(found.not_finite[0].name, "w");
  EXPECT_EQ(found.not_finite[1].name, "self.value");  // a parameter

  const Arrays plain = file(io::Section::kParameter, {0, -inf});
  const io::Comparison unsectioned = compare({plain, plain}, {}, {false, false});
  ASSERT_EQ(unsectioned.not_finite.size(), 1u);
  EXPECT_EQ(unsectioned.not_finite[0].name, "w");
}

}  // namespace
