// Recognizes files of other formats by their first bytes, for messages.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace io {

// Returns e.g. "an Excel workbook (.xlsx)"; "" for an unknown format. `head` has the first bytes;
// some hundred are needed to distinguish archives.
std::string format_of(std::span<const std::uint8_t> head);

// Throws DataError for a file of such a format, with its name and how to convert it to text.
void refuse_other_format(std::span<const std::uint8_t> head, const std::string& path);

// Throws DataError for text in UTF-16 or UTF-32 without a byte-order mark: every second byte is
// seldom or never 0, and many of the others are. Accepts too short a head for evidence.
void refuse_unmarked_text(std::span<const std::uint8_t> head, const std::string& path);

}  // namespace io
