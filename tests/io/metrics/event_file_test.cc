// Files that hold whole records whatever happens to the disk. What TensorBoard makes of them:
// tests/tools/commands/views/tensorboard_test.cc.
#include "io/metrics/event_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/metrics/tf_record.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

// The payloads of a file; a record that is torn or damaged fails the test.
std::vector<std::string> payloads_of(const std::string& path) {
  const std::string text = test_support::read_text(path);
  std::vector<std::string> payloads;
  for (std::size_t at = 0; at < text.size();) {
    std::uint64_t length = 0;  // as x86 and ARM have it in memory
    if (text.size() - at < 16) {
      ADD_FAILURE() << "torn at " << at;
      break;
    }
    std::memcpy(&length, text.data() + at, 8);
    if (length > text.size() - at - 16) {
      ADD_FAILURE() << "torn at " << at;
      break;
    }
    const std::string payload = text.substr(at + 12, length);
    EXPECT_EQ(text.substr(at, 16 + length), io::tf_record(payload)) << "record at " << at;
    payloads.push_back(payload);
    at += 16 + length;
  }
  return payloads;
}

TEST(EventFile, BeginsWithItsVersionAndHasARecordForEachCall) {
  const test_support::TemporaryDirectory folder;
  io::EventFile file(folder / "a/b", [] { return 1'763'797'000.25; });
  file.begin(7);
  file.scalars(8, {{"train/loss", 0.5}, {"train/accuracy", 0.25}});
  file.scalars(9, {});
  EXPECT_EQ(std::filesystem::path(file.path()).parent_path(), folder.path() / "a/b");
  EXPECT_EQ(std::filesystem::path(file.path())
                .filename()
                .string()
                .find("events.out.tfevents.1763797000.250000."),
            0u);
  const std::vector<std::string> payloads = payloads_of(file.path());
  ASSERT_EQ(payloads.size(), 3u);
  // wall_time (field 1) and file_version (field 3): what readers look at first.
  double time = 0;
  std::memcpy(&time, payloads[0].data() + 1, 8);
  EXPECT_EQ(time, 1'763'797'000.25);
  EXPECT_NE(payloads[0].find("\x1A\x0D"
                             "brain.Event:2"),
            std::string::npos);
  EXPECT_NE(payloads[2].find("train/accuracy"), std::string::npos);
}

// TensorBoard reads the files of a folder in the order of their names.
TEST(EventFile, ALaterStartHasALaterName) {
  const test_support::TemporaryDirectory folder;
  double time = 999'999'999.9999996;
  std::string last;
  for (int i = 0; i < 4; ++i, time += 0.5) {
    const io::EventFile file(folder.path().string(), [&] { return time; });
    EXPECT_LT(last, file.path());
    last = file.path();
  }
  const io::EventFile same(folder.path().string(), [&] { return time - 0.5; });
  EXPECT_NE(same.path(), last);
}

TEST(EventFile, SaysWhereItCannotCreate) {
  const test_support::TemporaryDirectory folder;
  test_support::write_text(folder / "file", "");
  try {
    const io::EventFile file(folder / "file/tensorboard");
    FAIL() << "a folder in a file";
  } catch (const io::CannotCreateError& error) {
    EXPECT_EQ(std::string(error.what()).find("tensorboard " + (folder / "file/tensorboard")), 0u)
        << error.what();
  }
}

// As the metrics: told once, written again when there is room, and no torn record in between.
TEST(EventFile, AFullDiskLosesEventsAndNoMore) {
  const test_support::TemporaryDirectory folder;
  std::vector<std::string> notices;
  io::EventFile file(folder.path().string(), {},
                     [&](const std::string& text) { notices.push_back(text); });
  file.scalars(1, {{"loss", 1}});
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit full{std::filesystem::file_size(file.path()) + 10, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &full);
  file.scalars(2, {{"loss", 2}});
  file.scalars(3, {{"loss", 3}});
  const std::size_t while_full = payloads_of(file.path()).size();
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, ignored);
  file.scalars(4, {{"after", 4}});
  file.scalars(5, {{"after", 5}});
  EXPECT_EQ(while_full, 2u);
  ASSERT_EQ(notices.size(), 2u);
  EXPECT_VALUES(notices[0], file.path() + ": too large");
  EXPECT_CONTAINS(notices[0], ": raise it (ulimit -f); training continues without it");
  EXPECT_EQ(notices[1], "tensorboard " + file.path() + ": written again; 2 events are missing");
  const std::vector<std::string> payloads = payloads_of(file.path());
  ASSERT_EQ(payloads.size(), 4u);
  EXPECT_NE(payloads[2].find("after"), std::string::npos);
}

}  // namespace
