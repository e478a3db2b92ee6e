// Errors are printed as one line, with the limit that is the reason.
#include "tools/report/output/exit_codes.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <filesystem>
#include <new>
#include <string>
#include <system_error>

#include "tests/support/expect_contains.h"

namespace {

std::string text_of_call(int error) {
  return tools::text_of(std::system_error(error, std::generic_category(), "cannot make it"));
}

TEST(ErrorText, OfACallNamesTheLimitThatItMayHaveMet) {
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  EXPECT_VALUES(text_of_call(EMFILE), "open files " + std::to_string(files.rlim_cur) + " -n");
  EXPECT_VALUES(text_of_call(EAGAIN), "processes (ulimit -u");
  EXPECT_EQ(text_of_call(EPIPE), "cannot make it: Broken pipe");
}

TEST(ErrorText, OfAFileIsItsNameAndTheCause) {
  using std::filesystem::filesystem_error;
  const std::error_code denied = std::make_error_code(std::errc::permission_denied);
  EXPECT_EQ(tools::text_of(filesystem_error("cannot create directories", "a\nb", denied)),
            "a\\nb: Permission denied");
  EXPECT_EQ(tools::text_of(filesystem_error("cannot rename", "a", "b", denied)),
            "a -> b: Permission denied");
}

TEST(ErrorText, OfMemoryNamesItsLimit) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  const rlimit limit{rlim_t{1} << 46, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  const std::string text = tools::text_of(std::bad_alloc());
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_VALUES(text, "memory 68719476736 KiB -v");
}

}  // namespace
