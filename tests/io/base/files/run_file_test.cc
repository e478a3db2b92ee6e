// Reading the files of a run's folder that may have come from elsewhere.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/base/files/open_file.h"
#include "tests/support/test_support.h"

namespace {

namespace fs = std::filesystem;
using test_support::write_text;

std::vector<std::string> lines_of(const std::string& path, std::size_t max_line_bytes = 100) {
  std::vector<std::string> lines;
  io::for_each_run_line(path, max_line_bytes, 1 << 20,
                        [&](const std::string& line) { lines.push_back(line); });
  return lines;
}

class RunFile : public testing::Test {
 protected:
  template <class Fault>
  void expect_fault() const {
    EXPECT_THROW(io::read_run_file(path_, 1 << 20), Fault);
    EXPECT_THROW(lines_of(path_), Fault);
  }
  test_support::TemporaryDirectory folder_;
  const std::string path_ = folder_ / "metrics.jsonl";
};

TEST_F(RunFile, IsReadWholeOrLineByLine) {
  write_text(path_, "one\n\nthree\nfo");
  EXPECT_EQ(io::read_run_file(path_, 100), "one\n\nthree\nfo");
  EXPECT_EQ(lines_of(path_), (std::vector<std::string>{"one", "", "three", "fo"}));
  write_text(path_, "");
  EXPECT_EQ(lines_of(path_), std::vector<std::string>{});
}

TEST_F(RunFile, LongLinesAreCutOff) {
  const std::string line(200'000, 'x');
  write_text(path_, line + "\nb\n" + line);
  EXPECT_EQ(lines_of(path_, 10),
            (std::vector<std::string>{std::string(10, 'x'), "b", std::string(10, 'x')}));
}

TEST_F(RunFile, IsARegularFile) {
  expect_fault<io::MissingFileError>();
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  expect_fault<io::DataError>();  // without waiting for a writer
  fs::remove(path_);
  fs::create_symlink("/dev/zero", path_);
  expect_fault<io::DataError>();
  fs::remove(path_);
  write_text(folder_ / "other", "{}\n");
  fs::create_symlink(folder_ / "other", path_);
  expect_fault<io::DataError>();
  fs::remove(path_);
  fs::create_directory(path_);
  expect_fault<io::DataError>();
}

// A sparse file takes no disk, but would take memory.
TEST_F(RunFile, HasALimitedSize) {
  write_text(path_, "");
  ASSERT_EQ(truncate(path_.c_str(), off_t{1} << 40), 0);
  expect_fault<io::DataError>();
}

}  // namespace
