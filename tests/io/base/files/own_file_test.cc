// Names in a folder from elsewhere that must not lead a write to another file.
#include "io/base/files/own_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>

#include "io/base/files/io_error.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

namespace fs = std::filesystem;
using test_support::read_text;
using test_support::write_text;

// Why a name is not opened; "" if it is.
std::string refusal(const std::function<base::Descriptor()>& open_it) {
  try {
    open_it();
    return "";
  } catch (const io::CannotCreateError& error) {
    return error.what();
  }
}

class OwnFile : public testing::Test {
 protected:
  OwnFile() { write_text(target_, "of the user\n"); }
  std::string refusal_of_file() const {
    return refusal([&] { return io::open_own_file(path_, O_WRONLY | O_CREAT | O_TRUNC); });
  }
  std::string refusal_of_folder() const {
    return refusal([&] { return io::open_own_folder(path_); });
  }
  std::string refusal_of_name() const {
    return refusal([&] {
      io::check_own_name(path_);
      return base::Descriptor();
    });
  }
  void expect_refused(const std::string& words) const {
    for (const std::string& text : {refusal_of_file(), refusal_of_name()}) {
      EXPECT_TRUE(text.starts_with(path_)) << text;
      EXPECT_CONTAINS(text, words);
    }
    EXPECT_EQ(read_text(target_), "of the user\n");
  }

  test_support::TemporaryDirectory folder_;
  const std::string path_ = folder_ / "log.txt", target_ = folder_ / "target";
};

TEST_F(OwnFile, IsMadeAndKeptAsItIs) {
  EXPECT_EQ(refusal_of_file(), "");
  EXPECT_TRUE(fs::exists(path_));
  write_text(path_, "lines\n");
  EXPECT_EQ(refusal_of_file(), "");
  EXPECT_EQ(read_text(path_), "lines\n");
  EXPECT_EQ(refusal_of_name(), "");
  fs::remove(path_);
  EXPECT_EQ(refusal_of_name(), "");
}

TEST_F(OwnFile, IsNoLink) {
  fs::create_symlink(target_, path_);
  expect_refused("is a link to " + target_);
}

TEST_F(OwnFile, IsNoLinkToAMissingFile) {
  fs::create_symlink(folder_ / "new", path_);
  expect_refused("is a link to " + (folder_ / "new"));
  EXPECT_FALSE(fs::exists(folder_ / "new"));
}

TEST_F(OwnFile, HasNoSecondName) {
  fs::create_hard_link(target_, path_);
  expect_refused("2 names");
}

TEST_F(OwnFile, IsNoPipeAndNoFolder) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_NE(refusal_of_file(), "");
  EXPECT_CONTAINS(refusal([&] { return io::open_own_file(path_, O_RDWR); }), "is a pipe");
  fs::remove(path_);
  fs::create_directory(path_);
  EXPECT_CONTAINS(refusal_of_file(), "Is a directory");
}

TEST_F(OwnFile, AFolderIsMadeOrTakenButNotThroughALink) {
  EXPECT_EQ(refusal_of_folder(), "");
  EXPECT_EQ(refusal_of_folder(), "");
  fs::remove(path_);
  fs::create_directory_symlink(folder_.path(), path_);
  EXPECT_CONTAINS(refusal_of_folder(), "is a link to");
}

}  // namespace
