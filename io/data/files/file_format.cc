// Defines a table of magic bytes.
#include "io/data/files/file_format.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "io/base/files/io_error.h"

namespace io {
namespace {

using namespace std::string_view_literals;

constexpr const char* kUnpack = "unpack it";
constexpr const char* kSave = "save it as CSV";
constexpr const char* kConvert = "convert it";

struct Format {
  std::string_view magic;
  std::size_t at;  // offset of the magic bytes
  const char *name, *advice;
};
constexpr Format kFormats[] = {
    {"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1"sv, 0, "an Excel workbook (.xls)", kSave},
    {"PAR1"sv, 0, "a Parquet file", kSave},
    {"ARROW1\0\0"sv, 0, "a Feather or Arrow file", kSave},
    {"FEA1"sv, 0, "a Feather file", kSave},
    {"ORC\0"sv, 0, "an ORC file", kSave},
    {"Obj\x01"sv, 0, "an Avro file", kSave},
    {"\x89HDF\r\n\x1A\n"sv, 0, "an HDF5 file", kSave},
    {"SQLite format 3\0"sv, 0, "an SQLite database", kSave},
    {"\x93NUMPY"sv, 0, "a NumPy array (.npy)", kSave},
    {"RDX2\n"sv, 0, "an R data file", kSave},
    {"RDX3\n"sv, 0, "an R data file", kSave},
    {"\x80\x02"sv, 0, "a pickle file", kSave},
    {"\x80\x03"sv, 0, "a pickle file", kSave},
    {"\x80\x04\x95"sv, 0, "a pickle file", kSave},
    {"\x80\x05\x95"sv, 0, "a pickle file", kSave},
    {"%PDF-"sv, 0, "a PDF", kConvert},
    {"\xFD"
     "7zXZ\0"sv,
     0, "an xz archive", kUnpack},
    {"\x31\x41\x59\x26\x53\x59"sv, 4, "a bzip2 archive", kUnpack},
    {"\x28\xB5\x2F\xFD"sv, 0, "a Zstandard archive", kUnpack},
    {"\x04\x22\x4D\x18"sv, 0, "an LZ4 archive", kUnpack},
    {"7z\xBC\xAF\x27\x1C"sv, 0, "a 7-Zip archive", kUnpack},
    {"Rar!\x1A\x07"sv, 0, "a RAR archive", kUnpack},
    {"ustar"sv, 257, "a tar archive", kUnpack},
    {"WEBP"sv, 8, "a WebP image", kConvert},
    {"GIF87a"sv, 0, "a GIF image", kConvert},
    {"GIF89a"sv, 0, "a GIF image", kConvert},
    {"II*\0"sv, 0, "a TIFF image", kConvert},
    {"MM\0*"sv, 0, "a TIFF image", kConvert},
    {"ftypavif"sv, 4, "an AVIF image", kConvert},
    {"ftypheic"sv, 4, "a HEIC image", kConvert},
    {"\x89PNG\r\n\x1A\n"sv, 0, "a PNG image", kConvert},
    {"\xFF\xD8\xFF"sv, 0, "a JPEG image", kConvert},
};

// Workbooks are archives that contain files with known names.
const Format& format_of_zip(std::string_view head) {
  static constexpr Format kWorkbook{"PK", 0, "an Excel workbook (.xlsx)", kSave};
  static constexpr Format kSheet{"PK", 0, "an OpenDocument spreadsheet (.ods)", kSave};
  static constexpr Format kArrays{"PK", 0, "a NumPy archive (.npz)", kSave};
  static constexpr Format kArchive{"PK", 0, "a ZIP archive", kUnpack};
  if (head.find("[Content_Types].xml") != std::string_view::npos ||
      head.find("xl/") != std::string_view::npos)
    return kWorkbook;
  if (head.find("opendocument.spreadsheet") != std::string_view::npos) return kSheet;
  return head.substr(0, 300).find(".npy") != std::string_view::npos ? kArrays : kArchive;
}

const Format* find_format(std::span<const std::uint8_t> bytes) {
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()),
                              std::min<std::size_t>(bytes.size(), 4096));
  if (head.starts_with("PK\x03\x04")) return &format_of_zip(head);
  for (const Format& format : kFormats)
    if (head.size() >= format.at && head.substr(format.at).starts_with(format.magic))
      return &format;
  return nullptr;
}

}  // namespace

std::string format_of(std::span<const std::uint8_t> head) {
  const Format* found = find_format(head);
  return found == nullptr ? "" : found->name;
}

void refuse_other_format(std::span<const std::uint8_t> head, const std::string& path) {
  if (const Format* found = find_format(head))
    throw DataError(path + ": found " + found->name + ", expected text, plain or gzipped; " +
                    found->advice + " first");
}

void refuse_unmarked_text(std::span<const std::uint8_t> head, const std::string& path) {
  constexpr std::size_t kLongest = 4096, kFewest = 8;  // bytes; pairs of them
  const std::size_t pairs = std::min(head.size(), kLongest) / 2;
  std::array<std::size_t, 2> zeros{};
  for (std::size_t i = 0; i < 2 * pairs; ++i) zeros[i % 2] += head[i] == 0 ? 1 : 0;
  const auto [few, many] = std::minmax(zeros[0], zeros[1]);
  if (pairs < kFewest || 8 * many < pairs) return;
  const bool is_wide = 4 * many >= 3 * pairs && 8 * few >= 3 * pairs;
  if (!is_wide && 64 * few > many) return;
  throw DataError(path + ": looks like " + (is_wide ? "UTF-32" : "UTF-16") +
                  " without a byte-order mark: found 0 in " + std::to_string(few + many) + " of " +
                  std::to_string(2 * pairs) + " bytes; expected UTF-8, or UTF-16 with its mark; " +
                  "convert it with iconv");
}

}  // namespace io
