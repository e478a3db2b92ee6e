// Staging: copies what is missing or has changed, removes what is gone, and never shows half a
// file.
#include "io/data/loader/staging.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
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
                  "cannot create folder " + (folder_ / "file/source-"));
}

// The name can be computed by everyone, so another user may have made the folder.
TEST_F(Staging, OnlyAFolderOfThisUserOrRootThatOthersCannotWriteIsUsed) {
  const std::string copy = stage();
  EXPECT_EQ(fs::status(copy).permissions(), fs::perms::owner_all);
  const auto refused = [&](const std::string& found) {
    const std::string text = test_support::error_of<CannotCreateError>([&] { stage(); });
    EXPECT_CONTAINS(text, "cannot stage in " + copy + ": " + found);
    EXPECT_CONTAINS(text, "(" + std::to_string(geteuid()) + ")");
  };
  for (const fs::perms writable : {fs::perms::group_write, fs::perms::others_write}) {
    fs::permissions(copy, fs::perms::owner_all | writable);
    refused("its mode is 07");
    EXPECT_EQ(test_support::read_text(copy + "/a.txt"), "first");
  }
  fs::permissions(copy, fs::perms::owner_all | fs::perms::group_read);
  stage();
  EXPECT_EQ(fs::status(copy).permissions(), fs::perms::owner_all);
  fs::rename(copy, folder_ / "elsewhere");
  fs::remove(folder_ / "elsewhere/a.txt");
  fs::create_directory_symlink(folder_ / "elsewhere", copy);
  refused("it is a link");
  EXPECT_FALSE(fs::exists(folder_ / "elsewhere/a.txt"));
  fs::remove(copy);
  fs::rename(folder_ / "elsewhere", copy);
  if (geteuid() != 0) GTEST_SKIP() << "only root gives folders away";
  ASSERT_EQ(chown(copy.c_str(), 4711, 4711), 0);
  refused("it belongs to user 4711");
  EXPECT_FALSE(fs::exists(copy + "/a.txt"));
}

TEST_F(Staging, ALinkInPlaceOfACopyIsReplaced) {
  const std::string copy = stage();
  fs::remove(copy + "/a.txt");
  fs::create_symlink(folder_ / "source/a.txt", copy + "/a.txt");
  stage();
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(copy + "/a.txt")));
}

TEST_F(Staging, AFullDiskIsReportedWithBothNumbers) {
  fs::create_directory(folder_ / "local");
  if (mount("tmpfs", (folder_ / "local").c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "may not mount a file system";
  write("source/large.txt", std::string(200'000, 'x'));
  const std::string text = test_support::error_of<CannotCreateError>([&] { stage(); });
  umount2((folder_ / "local").c_str(), MNT_DETACH);
  EXPECT_CONTAINS(text, "large.txt: No space left on device: it takes 200000 bytes, ");
  EXPECT_CONTAINS(text, " are free");
}

}  // namespace
}  // namespace io
