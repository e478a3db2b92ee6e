// Tests the NVTX ranges of a training with a library that plays the tool.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/nvtx_log.h"
#include "tests/support/test_support.h"

namespace {

using test_support::CommandResult;
using test_support::TemporaryDirectory;

CommandResult train(const std::map<std::string, std::string>& environment,
                    std::vector<std::string> more = {}) {
  std::vector<std::string> command = test_support::argv(
      "train --model mlp --dataset synthetic --synthetic-shape 6x6x1 --synthetic-size 60 "
      "--batch-size 12 --steps 3 --threads 1 --device cpu");
  command.insert(command.end(), more.begin(), more.end());
  return test_support::engine(command, environment);
}

std::int64_t count(const std::vector<std::string>& ranges, const std::string& range) {
  return std::ranges::count(ranges, range);
}

TEST(NvtxProgram, AToolGetsTheSpansOfEachThread) {
  const TemporaryDirectory folder;
  const CommandResult result = train(nvtx_log::environment(folder / "log"));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err.find("NVTX"), std::string::npos) << result.err;
  const auto ranges = nvtx_log::ranges(folder / "log");
  const std::vector<std::string>& training = ranges.at("training");
  EXPECT_EQ(count(training, "step"), 3);
  EXPECT_EQ(count(training, "step > forward"), 3);
  EXPECT_EQ(count(training, "step > forward > layer 'layers.0' (dense)"), 3);
  EXPECT_EQ(count(training, "step > backward > layer 'layers.0' (dense)"), 3);
  EXPECT_EQ(count(training, "step > update"), 3);
  EXPECT_GE(count(training, "evaluation"), 1);
  EXPECT_GE(count(ranges.at("loader"), "prepare a batch"), 3);
  EXPECT_FALSE(ranges.contains("unnamed"));
}

// Steps that the trace leaves out are ranges, and nothing of the result changes.
TEST(NvtxProgram, RangesAndATraceDoNotDisturbEachOther) {
  const TemporaryDirectory folder;
  const CommandResult both =
      train(nvtx_log::environment(folder / "log"),
            {"--trace", folder / "t.json", "--trace-steps", "2:2", "--save-dir", folder / "both"});
  ASSERT_EQ(both.exit_code, 0) << both.err;
  EXPECT_EQ(count(nvtx_log::ranges(folder / "log").at("training"), "step"), 3);
  const std::string trace = test_support::read_text(folder / "t.json");
  EXPECT_NE(trace.find("\"step\":2}"), std::string::npos);
  EXPECT_EQ(trace.find("\"step\":1}"), std::string::npos);
  const CommandResult neither = train({}, {"--save-dir", folder / "neither"});
  ASSERT_EQ(neither.exit_code, 0) << neither.err;
  const CommandResult same = test_support::engine({"verify", folder / "both", folder / "neither"});
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
}

TEST(NvtxProgram, AToolThatCannotBeAttachedIsANotice) {
  const TemporaryDirectory folder;
  auto environment = nvtx_log::environment(folder / "log", "refuses");
  const auto expect_notice = [&](const std::string& reason) {
    const CommandResult result = train(environment);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_CONTAINS(result.err, "no NVTX ranges, NVTX_INJECTION64_PATH: ");
    EXPECT_VALUES(result.err, reason);
    EXPECT_FALSE(std::filesystem::exists(folder / "log"));
  };
  expect_notice("does not start");
  environment["FAKE_NVTX"] = "marks";
  expect_notice("does not take ranges");
  environment["NVTX_INJECTION64_PATH"] = folder / "none.so";
  expect_notice("none.so: cannot open");
  environment["NVTX_INJECTION64_PATH"] = "libc.so.6";
  expect_notice("libc.so.6 has no InitializeInjectionNvtx2()");
}

}  // namespace
