// Signals that interrupt a save: what waits for the disk is called again.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "io/checkpoint/atomic_file.h"
#include "io/checkpoint/checkpoint_directory.h"
#include "tests/io/checkpoint/checkpoint_fixture.h"
#include "tests/support/test_support.h"

namespace {

std::atomic<int> interruptions{0};  // so many of the next calls of fsync() are interrupted

}  // namespace

// Takes the place of the library's in this program. No file system at hand lets a signal interrupt
// fsync(), but network file systems do.
extern "C" int fsync(int fd) {
  if (interruptions > 0 && interruptions-- > 0) {
    errno = EINTR;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fsync, fd));
}

namespace {

using namespace checkpoint_fixture;

TEST(InterruptedSave, FsyncOfTheFileAndOfTheFolderAreCalledAgain) {
  const test_support::TemporaryDirectory folder;
  for (int count = 1; count <= 6; ++count) {
    interruptions = count;
    const std::string path = io::save_to_directory(sample_checkpoint(count), folder.path(), 3);
    EXPECT_EQ(interruptions, 0);
    expect_equal(io::load_checkpoint(path), sample_checkpoint(count));
  }
  EXPECT_EQ(names_in(folder.path()),
            (std::vector<std::string>{"latest", "step-00000004.ckpt", "step-00000005.ckpt",
                                      "step-00000006.ckpt"}));
}

}  // namespace
