// The values of a job as schedulers spell them.
#include <gtest/gtest.h>

#include "io/base/files/io_error.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tools/launch/jobs/job_request.h"
#include "tools/launch/jobs/job_script.h"
#include "tools/launch/workers/child_program.h"

namespace tools {
namespace {

using test_support::error_of;

// The forms of sbatch(1).
TEST(JobRequest, TimeLimitsAreThoseOfSbatch) {
  const std::pair<const char*, std::int64_t> limits[] = {{"30", 1800},      {"30:15", 1815},
                                                         {"2:00:00", 7200}, {"1-12", 129'600},
                                                         {"1-2:30", 95400}, {"1-2:30:05", 95405}};
  for (const auto& [text, seconds] : limits) EXPECT_EQ(parse_time_limit(text), seconds) << text;
  for (const char* bad : {"", "x", "1:2:3:4", "-5", "1-", "1-2-3", "1:", "2h", "99999999999"})
    EXPECT_CONTAINS(error_of<io::ConfigError>([&] { static_cast<void>(parse_time_limit(bad)); }),
                    "--time '" + std::string(bad) + "': expected");
  for (const char* none : {"0", "UNLIMITED", "infinite"}) EXPECT_EQ(parse_time_limit(none), 0);
}

TEST(JobRequest, ArraysAreListsOfRanges) {
  using Tasks = std::vector<std::int64_t>;
  EXPECT_EQ(parse_job_array("0-3").tasks, (Tasks{0, 1, 2, 3}));
  EXPECT_EQ(parse_job_array("1-7:3,9%2").tasks, (Tasks{1, 4, 7, 9}));
  EXPECT_EQ(parse_job_array("5").tasks, (Tasks{5}));
  for (const char* bad : {"", "a", "3-1", "0-3:0", "3:2", "1-2-3", "0-3%0", "0-3%", "0-10000", ","})
    EXPECT_CONTAINS(error_of<io::ConfigError>([&] { static_cast<void>(parse_job_array(bad)); }),
                    "--array '" + std::string(bad) + "': expected");
  EXPECT_EQ(of_task("runs/s%a-%a", 12), "runs/s12-12");
  EXPECT_EQ(of_task("runs", 12), "runs");
}

TEST(JobRequest, MemoryIsOfANode) {
  EXPECT_EQ(parse_memory("16G"), 16 * 1024);
  EXPECT_EQ(parse_memory("16g"), 16 * 1024);
  EXPECT_EQ(parse_memory("16GB"), 16 * 1024);
  EXPECT_EQ(parse_memory("1500k"), 2);
  EXPECT_EQ(parse_memory("0"), 0);
  EXPECT_EQ(parse_memory("800"), 800);
  EXPECT_EQ(parse_memory("2T"), 2 * 1024 * 1024);
  for (const char* bad : {"", "G", "b", "16B", "16Gx", "-1", "1.5G"})
    EXPECT_CONTAINS(error_of<io::ConfigError>([&] { static_cast<void>(parse_memory(bad)); }),
                    "--mem '" + std::string(bad) + "': expected");
}

TEST(JobScript, APathThatSchedulersReadOtherwiseIsRejected) {
  JobRequest request;
  request.folder = "/runs/a\\b";
  EXPECT_VALUES(error_of<io::ConfigError>([&] { static_cast<void>(job_script(request)); }),
                "'/runs/a\\b' backslash");
}

TEST(ChildProgram, ReturnsCodeAndOutput) {
  const ProgramResult result =
      run_program({"/bin/sh", "-c", "echo out; echo first >&2; echo 'last ' >&2; exit 3"},
                  std::chrono::seconds(60));
  EXPECT_EQ(result.code, 3);
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(last_line(result.err), "last");
  EXPECT_EQ(run_program({"/bin/sh", "-c", "kill -KILL $$"}, std::chrono::seconds(60)).code, 137);
  EXPECT_THROW(static_cast<void>(run_program({"/no/such"}, std::chrono::seconds(60))),
               std::system_error);
}

TEST(ChildProgram, IsEndedByAStop) {
  const ProgramResult stopped = run_program({"/bin/sh", "-c", "echo begun; exec sleep 1000"},
                                            std::chrono::hours(1), [] { return true; });
  EXPECT_EQ(stopped.code, std::nullopt);
}

TEST(ChildProgram, IsEndedAtItsDeadline) {
  EXPECT_EQ(run_program({"/bin/sleep", "1000"}, std::chrono::milliseconds(50)).code, std::nullopt);
}

}  // namespace
}  // namespace tools
