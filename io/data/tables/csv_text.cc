// Decodes UTF-16 (RFC 2781) unit by unit.
#include "io/data/tables/csv_text.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "io/base/files/io_error.h"
#include "io/data/files/file_format.h"

namespace io {
namespace {

void add_character(std::uint32_t c, std::vector<std::uint8_t>& text) {
  const auto byte = [&](std::uint32_t value) { text.push_back(static_cast<std::uint8_t>(value)); };
  if (c < 0x80) return byte(c);
  if (c < 0x800) {
    byte(0xC0 | c >> 6);
  } else {
    if (c < 0x10000) {
      byte(0xE0 | c >> 12);
    } else {
      byte(0xF0 | c >> 18);
      byte(0x80 | (c >> 12 & 0x3F));
    }
    byte(0x80 | (c >> 6 & 0x3F));
  }
  byte(0x80 | (c & 0x3F));
}

}  // namespace

void CsvText::find_encoding(std::vector<std::uint8_t>& bytes) {
  encoding_ = Encoding::kBytes;
  refuse_other_format(bytes, path());
  constexpr std::array<std::uint8_t, 3> kMark{0xEF, 0xBB, 0xBF};  // for UTF-8
  if (bytes.size() >= kMark.size() && std::equal(kMark.begin(), kMark.end(), bytes.begin()))
    bytes.erase(bytes.begin(), bytes.begin() + kMark.size());
  if (bytes.size() < 2) return;
  // The little-endian mark of UTF-32 begins as that of UTF-16.
  constexpr std::array<std::uint8_t, 4> kLittle32{0xFF, 0xFE, 0, 0}, kBig32{0, 0, 0xFE, 0xFF};
  for (const auto& mark : {kLittle32, kBig32})
    if (bytes.size() >= mark.size() && std::equal(mark.begin(), mark.end(), bytes.begin()))
      throw DataError(path() +
                      ": starts with the byte-order mark of UTF-32, expected UTF-8, or UTF-16 with "
                      "its mark");
  if (bytes[0] == 0xFF && bytes[1] == 0xFE) encoding_ = Encoding::kLittle;
  if (bytes[0] == 0xFE && bytes[1] == 0xFF) encoding_ = Encoding::kBig;
  if (encoding_ == Encoding::kBytes) return refuse_unmarked_text(bytes, path());
  bytes.erase(bytes.begin(), bytes.begin() + 2);
}

void CsvText::add_unit(std::uint32_t unit, std::vector<std::uint8_t>& text) {
  const bool high = unit >= 0xD800 && unit < 0xDC00, low = unit >= 0xDC00 && unit < 0xE000;
  if (low != (high_ != 0))
    throw DataError(path() +
                    ": found half of a surrogate pair, expected UTF-16 as the byte-order "
                    "mark says");
  if (low)
    add_character(0x10000 + ((high_ - 0xD800) << 10) + (unit - 0xDC00), text);
  else if (!high)
    add_character(unit, text);
  high_ = high ? unit : 0;
}

void CsvText::convert(const std::vector<std::uint8_t>& bytes, bool last,
                      std::vector<std::uint8_t>& text) {
  for (const std::uint8_t byte : bytes) {
    if (!has_half_) {
      half_ = byte;
      has_half_ = true;
      continue;
    }
    has_half_ = false;
    const std::uint32_t first = half_, second = byte;
    add_unit(encoding_ == Encoding::kLittle ? first | second << 8 : first << 8 | second, text);
  }
  if (last && (has_half_ || high_ != 0))
    throw DataError(path() + ": ends within a character of UTF-16");
}

bool CsvText::append(std::size_t bytes, std::vector<std::uint8_t>& text) {
  if (encoding_ == Encoding::kBytes) {
    const std::size_t before = text.size();
    text.resize(before + bytes);
    text.resize(before + file_.read(std::span(text).subspan(before)));
    return text.size() == before + bytes;
  }
  std::vector<std::uint8_t> packed(bytes);
  packed.resize(file_.read(packed));
  const bool more = packed.size() == bytes;
  if (encoding_ == Encoding::kUnknown) find_encoding(packed);
  if (encoding_ == Encoding::kBytes)
    text.insert(text.end(), packed.begin(), packed.end());
  else
    convert(packed, !more, text);
  return more;
}

bool CsvText::append_some(std::size_t bytes, std::vector<std::uint8_t>& text) {
  constexpr std::size_t kFirst = 4;  // the longest byte-order mark
  std::vector<std::uint8_t> packed(bytes);
  std::size_t size = 0, got = 0;
  do {
    got = file_.read_some(std::span(packed).subspan(size));
    size += got;
  } while (got > 0 && encoding_ == Encoding::kUnknown && size < kFirst);
  packed.resize(size);
  if (encoding_ == Encoding::kUnknown) find_encoding(packed);
  if (encoding_ == Encoding::kBytes)
    text.insert(text.end(), packed.begin(), packed.end());
  else
    convert(packed, got == 0, text);
  return got > 0;
}

std::vector<std::uint8_t> CsvText::rest() {
  std::vector<std::uint8_t> bytes = file_.read_up_to(std::numeric_limits<std::uint64_t>::max());
  if (encoding_ == Encoding::kUnknown) find_encoding(bytes);
  if (encoding_ == Encoding::kBytes) return bytes;
  std::vector<std::uint8_t> text;
  text.reserve(bytes.size());
  convert(bytes, true, text);
  return text;
}

}  // namespace io
