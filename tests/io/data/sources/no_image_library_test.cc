// A build without an image library says so, at the start.
#include <gtest/gtest.h>

#include <filesystem>

#include "io/base/files/io_error.h"
#include "io/data/sources/dataset_registry.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace io {
namespace {

TEST(NoImageLibrary, SaysWhatIsMissing) {
  const test_support::TemporaryDirectory folder;
  std::filesystem::create_directories(folder / "train/a");
  std::filesystem::create_directories(folder / "val/a");
  test_support::write_text(folder / ("train/a/x." NO_DECODER_ENDING), "");
  DatasetOptions options;
  options.name = "images";
  options.directory = folder.path().string();
  const std::string error_text =
      test_support::error_of<ConfigError>([&] { load_dataset(options); });
  EXPECT_CONTAINS(error_text, "this build reads no");
  EXPECT_CONTAINS(error_text, "-dev");
}

}  // namespace
}  // namespace io
