// Recognizes files of other formats by their first bytes, for messages.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace io {

// "an Excel workbook (.xlsx)"; "" for anything that is not known. `head`: the first bytes, some
// hundred of which tell archives apart.
std::string format_of(std::span<const std::uint8_t> head);

// Throws DataError for a file of such a format, which names it and says how to make a text of it.
void refuse_other_format(std::span<const std::uint8_t> head, const std::string& path);

}  // namespace io
