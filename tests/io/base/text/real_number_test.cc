// Both ways to read a number agree, on numbers and on what is none.
#include "io/base/text/real_number.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <string>

namespace base {
namespace {

constexpr const char* kTexts[] = {"0",
                                  "-0",
                                  "1",
                                  "-1.5",
                                  "1e3",
                                  "1E-3",
                                  "1e",
                                  "1e+",
                                  "e1",
                                  ".5",
                                  "5.",
                                  ".",
                                  "-",
                                  "",
                                  "+1",
                                  "--1",
                                  "-+1",
                                  " 1",
                                  "1 ",
                                  "0x10",
                                  "-0X1p3",
                                  "0x",
                                  "1,5",
                                  "inf",
                                  "-inf",
                                  "infinity",
                                  "INF",
                                  "in",
                                  "nan",
                                  "-nan",
                                  "nan(1)",
                                  "NaN",
                                  "null",
                                  "1e400",
                                  "-1e400",
                                  "1e-400",
                                  "1e-310",
                                  "4.9e-324",
                                  "0e400",
                                  "0.0e-5",
                                  "1e39",
                                  "1e-46",
                                  "1e-40",
                                  "3.4028236e38",
                                  "16777217",
                                  "0.1",
                                  "1.7976931348623157e308",
                                  "123456789012345678901234567890.5",
                                  "12abc"};

template <typename Real, typename Bits>
void expect_equal(const std::string& text) {
  Real one = 7, two = 7;
  const char *first = text.data(), *last = first + text.size();
  const auto a = real_from_chars(first, last, one);
  const auto b = real_by_strtod(first, last, two);
  EXPECT_EQ(a.ptr - first, b.ptr - first) << text;
  EXPECT_EQ(a.ec, b.ec) << text;
  EXPECT_EQ(std::bit_cast<Bits>(one), std::bit_cast<Bits>(two)) << text;
}

TEST(RealNumber, BothWaysAgree) {
  for (const char* text : kTexts) {
    expect_equal<double, std::uint64_t>(text);
    expect_equal<float, std::uint32_t>(text);
  }
}

TEST(RealNumber, ReadsWhatItSays) {
  const std::string text = "-1.5e2x";
  double value = 0;
  const auto result = real_by_strtod(text.data(), text.data() + text.size(), value);
  EXPECT_EQ(value, -150);
  EXPECT_EQ(result.ptr, text.data() + 6);
  EXPECT_EQ(result.ec, std::errc{});
}

}  // namespace
}  // namespace base
