// A build without an image library says so, at the start.
#include <gtest/gtest.h>

#include <filesystem>

#include "io/base/files/io_error.h"
#include "io/data/sources/dataset.h"
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
  try {
    load_dataset(options);
    FAIL() << "the missing library went unnoticed";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("this build reads no"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("-dev"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace io
