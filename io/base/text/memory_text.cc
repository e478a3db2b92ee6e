// Formats sizes of memory in units of powers of 1,024.
#include "io/base/text/memory_text.h"

#include <iterator>

#include "io/base/text/text_parts.h"

namespace base {

std::string memory_text(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {" B", " KiB", " MiB", " GiB", " TiB"};
  std::size_t unit = 0;
  double size = static_cast<double>(bytes);
  for (; size >= 1024 && unit + 1 < std::size(kUnits); ++unit) size /= 1024;
  const char* format = size < 9.995 ? "%.2f" : size < 99.95 ? "%.1f" : "%.0f";
  std::string number = number_text(format, size);
  if (number.find('.') != std::string::npos) {
    number.erase(number.find_last_not_of('0') + 1);
    if (number.back() == '.') number.pop_back();
  }
  return number + kUnits[unit];
}

std::string enough_memory_text(std::uint64_t bytes) {
  const bool small = bytes < std::uint64_t{10} << 20;
  const int shift = small ? 10 : 20;
  const std::uint64_t last = (std::uint64_t{1} << shift) - 1;
  return std::to_string((bytes + last) >> shift) + (small ? " KiB" : " MiB");
}

}  // namespace base
