// Staging: copies what is missing or has changed, removes what is gone, and never shows half a
// file.
#include "io/data/loader/staging.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "io/base/files/io_error.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace io {
namespace {

namespace fs = std::filesystem;

class Staging : public ::testing::Test {
 protected:
  Staging() {
    write("source/a.txt", "first");
    write("source/sub/b.txt", "second");
  }
  void write(const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(folder_ / name).parent_path());
    test_support::write_text(folder_ / name, text);
  }
  std::string stage() {
    stage_files(folder_ / "source", folder_ / "local");
    return staged_path(folder_ / "source", folder_ / "local");
  }

  test_support::TemporaryDirectory folder_;
};

TEST_F(Staging, MirrorsAFolder) {
  const std::string copy = stage();
  EXPECT_EQ(test_support::read_text(copy + "/a.txt"), "first");
  EXPECT_EQ(test_support::read_text(copy + "/sub/b.txt"), "second");
  EXPECT_EQ(staged_path(folder_ / "source/", folder_ / "local"), copy);
  EXPECT_NE(staged_path(folder_ / "other", folder_ / "local"), copy);
}

TEST_F(Staging, CopiesOnlyWhatHasChangedAndRemovesWhatIsGone) {
  const std::string copy = stage();
  const auto seen = fs::last_write_time(copy + "/a.txt");
  test_support::write_text(copy + "/a.txt", "FIRST");  // the same size and time: taken for the same
  fs::last_write_time(copy + "/a.txt", seen);
  write("source/sub/b.txt", "longer than before");
  write("source/c.txt", "third");
  stage();
  EXPECT_EQ(test_support::read_text(copy + "/a.txt"), "FIRST");
  EXPECT_EQ(test_support::read_text(copy + "/sub/b.txt"), "longer than before");
  EXPECT_EQ(test_support::read_text(copy + "/c.txt"), "third");
  fs::last_write_time(folder_ / "source/a.txt", seen + std::chrono::seconds(5));
  fs::remove(folder_ / "source/c.txt");
  stage();
  EXPECT_EQ(test_support::read_text(copy + "/a.txt"), "first");
  EXPECT_FALSE(fs::exists(copy + "/c.txt"));
  for (const auto& entry : fs::recursive_directory_iterator(copy))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path();
}

TEST_F(Staging, OneFileLiesInAFolderOfItsName) {
  stage_files(folder_ / "source/a.txt", folder_ / "local");
  const std::string copy = staged_path(folder_ / "source/a.txt", folder_ / "local");
  EXPECT_EQ(fs::path(copy).filename(), "a.txt");
  EXPECT_EQ(test_support::read_text(copy), "first");
}

TEST_F(Staging, LinksAreFollowedAndNoneMayLeadNowhere) {
  write("elsewhere/c.txt", "linked");
  fs::create_symlink(folder_ / "elsewhere", folder_ / "source/class");
  stage_files(folder_ / "source", folder_ / "local");
  const std::string copy = staged_path(folder_ / "source", folder_ / "local");
  EXPECT_EQ(test_support::read_text(copy + "/class/c.txt"), "linked");
  fs::create_symlink(folder_ / "gone", folder_ / "source/other");
  EXPECT_THROW(stage_files(folder_ / "source", folder_ / "local"), DataError);
}

TEST_F(Staging, WhatCannotBeReadOrWrittenIsNamed) {
  EXPECT_THROW(stage_files(folder_ / "none", folder_ / "local"), MissingFileError);
  fs::create_directories(folder_ / "empty");
  EXPECT_THROW(stage_files(folder_ / "empty", folder_ / "local"), MissingFileError);
  write("file", "in the way");
  EXPECT_CONTAINS(test_support::error_of<CannotCreateError>(
                      [&] { stage_files(folder_ / "source", folder_ / "file"); }),
                  "a.txt: cannot be copied from");
}

}  // namespace
}  // namespace io
