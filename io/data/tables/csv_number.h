// Parses numbers as people write them in tables: with a decimal point or comma, and digits in
// groups.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace io {

struct CsvNumber {
  enum class Content : std::uint8_t {
    kNumber,
    kTooLarge,  // infinite, NaN, or beyond float32
    kText,      // not a number
  };
  Content content = Content::kText;
  bool grouped = false;  // 1,234,567
  double value = 0;
};

// Reads the whole field. `decimal` is '.' or ','. Digits before it may be in groups of three,
// separated by the other one of the two, an apostrophe, a space, or the no-break spaces U+00A0 and
// U+202F: 1,234.5 or 1'234.5 or, with a decimal comma, 1.234,5. The first group must not start with
// 0. A number too small for a double is 0. The minus sign U+2212 is read as "-". Blanks at both
// ends are skipped.
CsvNumber read_number(std::string_view field, char decimal);

// Returns the number that a class name stands for in any notation, e.g. 1, 1.0, 1,0 and 1e0 for 1;
// nothing for other texts, and for digits in groups, which may be decimals.
std::optional<double> number_called(std::string_view name);

// Parses the whole field as a 64-bit integer in plain digits.
std::optional<std::int64_t> whole_number(std::string_view field);

}  // namespace io
