// Reading the small files that users name: of which kinds, and how long it may take.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>

#include "io/base/files/io_error.h"
#include "io/base/files/open_file.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

constexpr std::uint64_t kMaxBytes = 1000;

class UserFile : public testing::Test {
 protected:
  std::string refusal() const {
    try {
      io::read_small_file(path_, kMaxBytes);
    } catch (const io::DataError& error) {
      return error.what();
    }
    return "read";
  }
  const test_support::TemporaryDirectory folder_;
  const std::string path_ = folder_ / "hosts";
};

// A pipe as a shell makes it for <(COMMAND), and the name that it gives it.
struct ShellPipe {
  int ends[2] = {-1, -1};
  ShellPipe() { EXPECT_EQ(pipe(ends), 0); }
  ~ShellPipe() {
    close(ends[0]);
    close_writer();
  }
  void close_writer() {
    if (ends[1] >= 0) close(ends[1]);
    ends[1] = -1;
  }
  void write_text(const std::string& text) const {
    EXPECT_EQ(write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  std::string name() const { return "/dev/fd/" + std::to_string(ends[0]); }
};

TEST_F(UserFile, IsARegularFileOrNothing) {
  test_support::write_text(path_, "one\ntwo\n");
  EXPECT_EQ(io::read_small_file(path_, kMaxBytes), "one\ntwo\n");
  EXPECT_EQ(io::read_small_file("/dev/null", kMaxBytes), "");
  EXPECT_THROW(io::read_small_file(folder_ / "none", kMaxBytes), io::MissingFileError);
}

TEST_F(UserFile, OfAnotherKindIsRefusedWithoutWaiting) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const std::string of_pipe = refusal();
  EXPECT_VALUES(of_pipe, path_ + ": device pipe");
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  EXPECT_CONTAINS(refusal(), path_ + ": is a folder");
  std::filesystem::remove(path_);
  std::filesystem::create_symlink("/dev/zero", path_);
  EXPECT_EQ(refusal(), of_pipe);
  std::filesystem::remove(path_);
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(path_.size(), sizeof address.sun_path);
  std::memcpy(address.sun_path, path_.data(), path_.size());
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_CONTAINS(refusal(), path_ + ": is a socket");
  close(listener);
}

TEST_F(UserFile, HasALimitedSize) {
  test_support::write_text(path_, "");
  ASSERT_EQ(truncate(path_.c_str(), off_t{1} << 40), 0);
  EXPECT_CONTAINS(refusal(), "longer than 1000 bytes");
}

TEST_F(UserFile, APipeOfAShellIsReadToItsEnd) {
  ShellPipe pipe;
  pipe.write_text("lr = 0.5\n");
  pipe.close_writer();
  EXPECT_EQ(io::read_small_file(pipe.name(), kMaxBytes), "lr = 0.5\n");
  EXPECT_THROW(io::read_small_file(pipe.name(), kMaxBytes), io::DataError);  // nothing is left
}

TEST_F(UserFile, APipeOfAShellIsWaitedForUntilTheDeadline) {
  ShellPipe pipe;
  pipe.write_text("lr = 0.5\n");
  try {
    io::read_small_file(pipe.name(), kMaxBytes, std::chrono::milliseconds(50));
    ADD_FAILURE() << "read, although its writer has not ended";
  } catch (const io::Error& error) {
    EXPECT_VALUES(error.what(), pipe.name() + ": 0 s 9 bytes");
  }
}

TEST_F(UserFile, APipeHasALimitedSize) {
  ShellPipe pipe;
  pipe.write_text(std::string(2000, 'x'));
  pipe.close_writer();
  EXPECT_THROW(io::read_small_file(pipe.name(), kMaxBytes), io::DataError);
}

}  // namespace
