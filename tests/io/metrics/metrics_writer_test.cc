// Lines that a script can rely on.
#include "io/metrics/metrics_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "io/base/files/io_error.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

double fixed_clock() { return 1'763'797'000.1254; }

TEST(MetricsWriter, WritesOneObjectALine) {
  const test_support::TemporaryDirectory folder;
  const std::string path = folder / "m.jsonl";
  {
    io::MetricsWriter writer(path, fixed_clock);
    writer.step(100, 0, 0.1, 0.05, 2500);
    writer.averaging(100, 0, 12, 3456, 0.125);
    writer.averaging(100, 0, 13, 4567, std::nullopt);
    writer.lr_find(100, 0, 0.05, NAN, 0.5);
    writer.eval(100, 1, {"test", 0.25, 0.5, 10'000});
    writer.end(100, 1, 12.5, 0);
  }
  EXPECT_EQ(test_support::read_text(path),
            "{\"schema\":1,\"event\":\"step\",\"step\":100,\"epoch\":0,\"time\":1763797000.125,"
            "\"loss\":0.1,\"lr\":0.05,"
            "\"samples_per_s\":2500}\n"
            "{\"schema\":1,\"event\":\"averaging\",\"step\":100,\"epoch\":0,\"time\":1763797000."
            "125,\"averagings\":12,\"bytes_"
            "sent\":3456,\"spread\":0.125}\n"
            "{\"schema\":1,\"event\":\"averaging\",\"step\":100,\"epoch\":0,\"time\":1763797000."
            "125,\"averagings\":13,\"bytes_"
            "sent\":4567}\n"
            "{\"schema\":1,\"event\":\"lr_find\",\"step\":100,\"epoch\":0,\"time\":1763797000.125,"
            "\"suggestion\":0.05,\"steepest\":null,\"lowest\":0.5}\n"
            "{\"schema\":1,\"event\":\"eval\",\"step\":100,\"epoch\":1,\"time\":1763797000.125,"
            "\"split\":\"test\",\"loss\":0.25,"
            "\"accuracy\":0.5,"
            "\"samples\":10000}\n"
            "{\"schema\":1,\"event\":\"end\",\"step\":100,\"epoch\":1,\"time\":1763797000.125,"
            "\"seconds\":12.5,\"exit\":0}\n");
}

TEST(MetricsWriter, FurtherNumbersFollowAndADesyncNamesTensorsAndRanks) {
  const test_support::TemporaryDirectory folder;
  const std::string path = folder / "m.jsonl";
  io::MetricsWriter writer(path, fixed_clock);
  writer.eval(1, 0,
              {.split = "test",
               .loss = 2,
               .accuracy = 0.5,
               .samples = 4,
               .more = {{"top5", 0.75}, {"perplexity", INFINITY}},
               .weights = "ema",
               .is_best = true});
  writer.desync(10, 0,
                {.last_good = 7,
                 .first_bad = 8,
                 .compared = 12,
                 .tensors = {"a.weight", "momentum/\"a\""},
                 .ranks = {1, 3},
                 .action = "repair"});
  EXPECT_EQ(
      test_support::read_text(path),
      "{\"schema\":1,\"event\":\"eval\",\"step\":1,\"epoch\":0,\"time\":1763797000.125,\"split\":"
      "\"test\",\"loss\":2,"
      "\"accuracy\":0.5,\"samples\":4,"
      "\"top5\":0.75,\"perplexity\":null,\"weights\":\"ema\",\"best\":true}\n"
      "{\"schema\":1,\"event\":\"desync\",\"step\":10,\"epoch\":0,\"time\":1763797000.125,\"last_"
      "good\":7,\"first_bad\":8,"
      "\"compared\":12,"
      "\"tensors\":[\"a.weight\",\"momentum/\\\"a\\\"\"],\"ranks\":[1,3],\"action\":\"repair\"}\n");
}

TEST(MetricsWriter, SharesHaveTheSpeedsThatTheyFollowFrom) {
  const test_support::TemporaryDirectory folder;
  const std::string path = folder / "m.jsonl";
  io::MetricsWriter writer(path, fixed_clock);
  writer.shares(12, 1, {24, 8}, {300.5, 100});
  writer.shares(13, 1, {24, 8}, {});
  EXPECT_EQ(test_support::read_text(path),
            "{\"schema\":1,\"event\":\"shares\",\"step\":12,\"epoch\":1,\"time\":1763797000.125,"
            "\"samples\":[24,8],\"samples_per_s\":[300.5,100]}\n"
            "{\"schema\":1,\"event\":\"shares\",\"step\":13,\"epoch\":1,\"time\":1763797000.125,"
            "\"samples\":[24,8]}\n");
}

TEST(MetricsWriter, WhatIsNotFiniteIsAnEvent) {
  const test_support::TemporaryDirectory folder;
  const std::string path = folder / "m.jsonl";
  io::MetricsWriter writer(path, fixed_clock);
  writer.nonfinite(12, 1, 11, "loss", "abort");
  writer.nonfinite(1, 0, std::nullopt, "parameter 'w'", "continue");
  writer.end(12, 1, 2, 0, {{"skipped_steps", 3}});
  EXPECT_EQ(test_support::read_text(path),
            "{\"schema\":1,\"event\":\"nonfinite\",\"step\":12,\"epoch\":1,\"time\":1763797000.125,"
            "\"last_good\":11,\"what\":\"loss\",\"action\":\"abort\"}\n"
            "{\"schema\":1,\"event\":\"nonfinite\",\"step\":1,\"epoch\":0,\"time\":1763797000.125,"
            "\"last_good\":null,\"what\":\"parameter 'w'\",\"action\":\"continue\"}\n"
            "{\"schema\":1,\"event\":\"end\",\"step\":12,\"epoch\":1,\"time\":1763797000.125,"
            "\"seconds\":2,\"exit\":0,\"skipped_steps\":3}\n");
}

TEST(MetricsWriter, NumbersReadBackExactlyAndNanIsNull) {
  const test_support::TemporaryDirectory folder;
  const std::string path = folder / "m.jsonl";
  const double loss = 2.302585092994046e-7 / 3;
  io::MetricsWriter writer(path, fixed_clock);
  writer.step(1, 0, loss, std::nan(""), INFINITY);
  const std::string line = test_support::read_text(path);
  EXPECT_EQ(std::stod(line.substr(line.find("\"loss\":") + 7)), loss);
  EXPECT_NE(line.find("\"lr\":null,\"samples_per_s\":null"), std::string::npos) << line;
}

TEST(MetricsWriter, WhatIsInTheFileStays) {
  const test_support::TemporaryDirectory folder;
  const std::string path = folder / "m.jsonl";
  io::MetricsWriter(path).end(1, 1, 1, 0);
  io::MetricsWriter(path).end(2, 1, 1, 0);
  const std::string both = test_support::read_text(path);
  EXPECT_EQ(std::count(both.begin(), both.end(), '\n'), 2);
}

TEST(MetricsWriter, SeveralFilesGetTheSameLines) {
  const test_support::TemporaryDirectory folder;
  const io::MetricsFiles files{.of_run = folder / "a.jsonl", .chosen = folder / "b.jsonl"};
  io::MetricsWriter(files).end(1, 1, 1, 0);
  EXPECT_NE(test_support::read_text(files.of_run), "");
  EXPECT_EQ(test_support::read_text(files.of_run), test_support::read_text(files.chosen));
  const io::MetricsFiles missing{.of_run = files.of_run, .chosen = "/no/such/folder/m.jsonl"};
  EXPECT_THROW(io::MetricsWriter{missing}, io::CannotCreateError);
}

// A run's folder may have come from elsewhere; a file that the user names may be a link.
TEST(MetricsWriter, OnlyAFileThatTheUserNamesMayBeALink) {
  const test_support::TemporaryDirectory folder;
  const std::string link = folder / "m.jsonl", target = folder / "target";
  test_support::write_text(target, "of the user\n");
  std::filesystem::create_symlink(target, link);
  EXPECT_THROW(io::MetricsWriter(io::MetricsFiles{.of_run = link}), io::CannotCreateError);
  EXPECT_EQ(test_support::read_text(target), "of the user\n");
  io::MetricsWriter(io::MetricsFiles{.chosen = link}).end(1, 1, 1, 0);
  EXPECT_NE(test_support::read_text(target), "of the user\n");
}

// As a full disk leaves the file.
TEST(MetricsWriter, ARunsFileThatEndsWithinALineGetsALineEnd) {
  const test_support::TemporaryDirectory folder;
  const std::string path = folder / "m.jsonl";
  test_support::write_text(path, "{\"schema\":1,\"ev");
  io::MetricsWriter(io::MetricsFiles{.of_run = path}).end(1, 1, 1, 0);
  EXPECT_TRUE(test_support::read_text(path).starts_with("{\"schema\":1,\"ev\n{\"schema\":1"));
}

TEST(MetricsWriter, AStartNamesTheRunAndHoldsItsRecord) {
  const test_support::TemporaryDirectory folder;
  io::MetricsWriter(folder / "m.jsonl", fixed_clock)
      .start(7, 1, "20260102-030405-abcdef01", "{\"model\":\"mlp\"}");
  EXPECT_EQ(test_support::read_text(folder / "m.jsonl"),
            "{\"schema\":1,\"event\":\"start\",\"step\":7,\"epoch\":1,\"time\":1763797000.125,"
            "\"run\":\"20260102-030405-abcdef01\",\"record\":{\"model\":\"mlp\"}}\n");
}

TEST(MetricsWriter, ALineThatWasTornDoesNotSpoilTheNext) {
  const test_support::TemporaryDirectory folder;
  const std::string path = folder / "m.jsonl";
  test_support::write_text(path, "{\"schema\":1,\"ev");
  io::MetricsWriter(path).end(2, 1, 1, 0);
  EXPECT_EQ(test_support::read_text(path).find("\n{\"schema\":1,\"event\":\"end\""), 15u);
}

TEST(MetricsWriter, APipeWithAReaderIsWritten) {
  const test_support::TemporaryDirectory folder;
  const std::string path = folder / "m.jsonl";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  io::MetricsWriter(path).end(1, 1, 1, 0);
  char text[512];
  const ssize_t length = read(reader, text, sizeof text);
  close(reader);
  EXPECT_EQ(std::string(text, static_cast<std::size_t>(std::max<ssize_t>(length, 0)))
                .find("{\"schema\":1,\"event\":\"end\""),
            0u);
}

TEST(MetricsWriter, NamesAreEscaped) {
  const test_support::TemporaryDirectory folder;
  io::MetricsWriter(folder / "m.jsonl").eval(1, 1, {"a\"b\\c\n\xc3\xa9", 1, 1, 1});
  EXPECT_NE(
      test_support::read_text(folder / "m.jsonl").find("\"split\":\"a\\\"b\\\\c\\u000a\xc3\xa9\""),
      std::string::npos);
}

TEST(MetricsWriter, SaysWhenItCannotCreateOrWrite) {
  EXPECT_THROW(io::MetricsWriter("/no/such/folder/m.jsonl"), io::CannotCreateError);
}

// Work is worth more than its record.
TEST(MetricsWriter, AFileThatTakesNoMoreIsSaidOnceAndWrittenAgainWhenItDoes) {
  const test_support::TemporaryDirectory folder;
  const std::string path = folder / "m.jsonl";
  std::vector<std::string> notices;
  io::MetricsWriter writer(path, {}, [&](const std::string& text) { notices.push_back(text); });
  writer.step(1, 0, 1, 1, 1);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit full{std::filesystem::file_size(path) + 10, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &full);
  writer.step(2, 0, 1, 1, 1);
  writer.step(3, 0, 1, 1, 1);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, ignored);
  writer.step(4, 0, 1, 1, 1);
  writer.step(5, 0, 1, 1, 1);
  ASSERT_EQ(notices.size(), 2u);
  EXPECT_VALUES(notices[0], path + ": too large");
  EXPECT_CONTAINS(notices[0], ": raise it (ulimit -f); training continues without it");
  EXPECT_EQ(notices[1], "metrics " + path + ": written again; 2 lines are missing");
  ASSERT_EQ(writer.losses().size(), 1u);
  EXPECT_EQ(writer.losses()[0].find("metrics " + path + ": 2 lines are missing: File too large"),
            0u)
      << writer.losses()[0];
  std::istringstream lines(test_support::read_text(path));
  std::vector<std::string> whole;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(line.ends_with('}')) << line;
    whole.push_back(line);
  }
  ASSERT_EQ(whole.size(), 3u);
  EXPECT_NE(whole[1].find("\"step\":4,"), std::string::npos);
}

}  // namespace
