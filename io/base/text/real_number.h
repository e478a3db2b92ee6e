// std::from_chars() of floating-point numbers, which not every standard library has.
#pragma once

#include <charconv>

namespace base {

// As std::from_chars() in std::chars_format::general.
std::from_chars_result real_from_chars(const char* first, const char* last, double& value);
std::from_chars_result real_from_chars(const char* first, const char* last, float& value);

// The same by strtod(): what the functions above call where the library lacks them.
std::from_chars_result real_by_strtod(const char* first, const char* last, double& value);
std::from_chars_result real_by_strtod(const char* first, const char* last, float& value);

}  // namespace base
