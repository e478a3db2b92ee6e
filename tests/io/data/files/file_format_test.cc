// Files of other formats are named where a text or an image is expected.
#include "io/data/files/file_format.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/data/images/image_decoder.h"
#include "io/data/sources/dataset_registry.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace io {
namespace {

using namespace std::string_literals;

const std::vector<std::pair<std::string, std::string>> kFiles{
    {"PK\x03\x04\x14\0\0\0\x08\0ab[Content_Types].xml"s, "an Excel workbook (.xlsx)"},
    {"PK\x03\x04\x14\0mimetypeapplication/vnd.oasis.opendocument.spreadsheet"s,
     "an OpenDocument spreadsheet (.ods)"},
    {"PK\x03\x04\x14\0t.csv"s, "a ZIP archive"},
    {"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1\0"s, "an Excel workbook (.xls)"},
    {"PAR1\x15\x04"s, "a Parquet file"},
    {"\xFD"s + "7zXZ\0\0"s, "an xz archive"},
    {"BZh91AY&SY\x11"s, "a bzip2 archive"},
    {"\x28\xB5\x2F\xFD\x04"s, "a Zstandard archive"},
    {"ARROW1\0\0x"s, "Feather Arrow"},
    {"FEA1xxxx"s, "a Feather file"},
    {"\x80\x04\x95\x10\0"s, "a pickle file"},
};

TEST(FileFormat, IsNamedInsteadOfATable) {
  const test_support::TemporaryDirectory folder;
  for (const auto& [bytes, name] : kFiles) {
    test_support::write_text(folder / "t.csv", bytes);
    for (const std::string set : {"csv", "text"}) {
      DatasetOptions options;
      options.name = set;
      options.csv.annotations = set == "csv" ? folder / "t.csv" : "";
      options.directory = folder / "t.csv";
      const std::string error_text =
          test_support::error_of<DataError>([&] { static_cast<void>(load_dataset(options)); });
      EXPECT_VALUES(error_text, "t.csv: " + name);
    }
  }
}

TEST(FileFormat, TextOfWideCharactersIsNamedInsteadOfATable) {
  const test_support::TemporaryDirectory folder;
  std::string bytes;
  for (const char c : "a,b\n1,2\n3,4\n"s) bytes += {c, '\0'};
  test_support::write_text(folder / "t.csv", bytes);
  DatasetOptions options;
  options.name = "csv";
  options.directory = folder / "t.csv";
  EXPECT_VALUES(
      test_support::error_of<DataError>([&] { static_cast<void>(load_dataset(options)); }),
      "t.csv: UTF-16 0 12 24 bytes");
}

TEST(FileFormat, IsNamedInsteadOfAnImage) {
  const std::string bytes = "RIFF\x10\0\0\0WEBPVP8 "s;
  EXPECT_VALUES(test_support::error_of<DataError>([&] {
                  static_cast<void>(
                      decode_image(std::vector<std::uint8_t>(bytes.begin(), bytes.end()), "a.png"));
                }),
                "a.png PNG JPEG 52 49 46 46 WebP PNG");
}

TEST(FileFormat, OfTextIsNotKnown) {
  for (const std::string text : {"PAR,x\n1,2\n", "PK,x\n1,2\n", "BZh,x\n", "%,PDF\n", ""}) {
    const std::vector<std::uint8_t> bytes(text.begin(), text.end());
    EXPECT_EQ(format_of(bytes), "") << text;
  }
}

}  // namespace
}  // namespace io
