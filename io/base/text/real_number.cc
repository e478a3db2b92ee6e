// strtod() accepts more than from_chars(): blanks and a plus before the number, and hexadecimal
// ones.
#include "io/base/text/real_number.h"

#include <locale.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>
#include <version>

namespace base {
namespace {

double convert(const char* text, char** end, locale_t place, double) {
  return ::strtod_l(text, end, place);
}
float convert(const char* text, char** end, locale_t place, float) {
  return ::strtof_l(text, end, place);
}

bool begins_number(char c) {  // also inf and nan, without their sign
  return (c >= '0' && c <= '9') || std::string_view(".iInN").find(c) != std::string_view::npos;
}

template <typename Real>
std::from_chars_result by_strtod(const char* first, const char* last, Real& value) {
  static const locale_t plain = ::newlocale(LC_ALL_MASK, "C", nullptr);
  std::string text(first, last);
  const std::size_t sign = text.starts_with('-') ? 1 : 0;
  const char begin = sign < text.size() ? text[sign] : '\0';
  if (!begins_number(begin)) return {first, std::errc::invalid_argument};
  const std::size_t second = sign + 1;  // of "0x1", from_chars() reads the 0
  if (begin == '0' && second < text.size() && (text[second] == 'x' || text[second] == 'X'))
    text.resize(second);
  char* end = nullptr;
  Real number = convert(text.c_str(), &end, plain, Real{});
  if (end == text.c_str()) return {first, std::errc::invalid_argument};
  if (std::isnan(number))  // without what stands in parentheses behind it
    number = std::copysign(std::numeric_limits<Real>::quiet_NaN(), number);
  const std::string_view read(text.data(), static_cast<std::size_t>(end - text.data()));
  const bool has_figure = read.find_first_of("123456789") < read.find_first_of("eE");
  const bool spelled = begin > '9';  // inf and nan
  const bool out = !spelled && ((number == 0 && has_figure) || std::isinf(number));
  if (!out) value = number;
  return {first + read.size(), out ? std::errc::result_out_of_range : std::errc{}};
}

template <typename Real>
std::from_chars_result best(const char* first, const char* last, Real& value) {
#if defined(__cpp_lib_to_chars)
  return std::from_chars(first, last, value);
#else
  return by_strtod(first, last, value);
#endif
}

}  // namespace

std::from_chars_result real_from_chars(const char* first, const char* last, double& value) {
  return best(first, last, value);
}
std::from_chars_result real_from_chars(const char* first, const char* last, float& value) {
  return best(first, last, value);
}
std::from_chars_result real_by_strtod(const char* first, const char* last, double& value) {
  return by_strtod(first, last, value);
}
std::from_chars_result real_by_strtod(const char* first, const char* last, float& value) {
  return by_strtod(first, last, value);
}

}  // namespace base
