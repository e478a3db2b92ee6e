// Encodes bytes as text (RFC 4648, section 4, with padding), for data URIs.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace base {

inline std::string base64_text(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = bytes.size() - i < 3 ? bytes.size() - i : 3;
    unsigned group = 0;
    for (std::size_t k = 0; k < 3; ++k)
      group = group << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k)
      text += k <= count ? kDigits[group >> (18 - 6 * k) & 63u] : '=';
  }
  return text;
}

}  // namespace base
