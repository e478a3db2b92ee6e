// engine bench step, scaling and demos: statistics, reports, and the real program on small models.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/base/files/io_error.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tools/bench/step/bench_step.h"
#include "tools/report/output/exit_codes.h"

namespace {

using namespace tools;
using Json = nlohmann::json;
using test_support::CommandResult;
using test_support::engine;

std::size_t lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(BenchStep, StatisticsOfEachRankAndPhase) {
  StepTimes times{"", "shm", 60, {}};
  times.ranks.resize(2);
  for (int i = 1; i <= 3; ++i) {
    const double ms = 1e-3 * i;
    times.ranks[0].push_back({.data = ms,
                              .forward = 2 * ms,
                              .backward = 3 * ms,
                              .communication = 4 * ms,
                              .update = 10 * ms});
    times.ranks[1].push_back(
        {.data = 0, .forward = ms, .backward = 0, .communication = 19 * ms, .update = 0});
  }
  const std::vector<PhaseRow> rows = summarize(times);
  ASSERT_EQ(rows.size(), 12u);
  EXPECT_EQ(rows[3].phase, "communication");
  EXPECT_NEAR(rows[3].min_ms, 4, 1e-9);
  EXPECT_NEAR(rows[3].p50_ms, 8, 1e-9);
  EXPECT_NEAR(rows[3].p99_ms, 12, 1e-9);
  EXPECT_NEAR(rows[3].share, 0.2, 1e-9);
  EXPECT_EQ(rows[5].phase, "step");
  EXPECT_NEAR(rows[5].p50_ms, 40, 1e-9);
  EXPECT_EQ(rows[11].rank, 1);
  EXPECT_NEAR(rows[9].share, 0.95, 1e-9);
  EXPECT_NEAR(times.rate(), 60 / 0.04, 1e-6);
}

TEST(BenchStep, AModelOfTextsGetsSyntheticTokens) {
  const CommandResult result = engine(
      {"bench", "step", "--model", "gpt-nano", "--batch", "2", "--steps", "3", "--format", "json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_GT(Json::parse(result.out)["samples_per_s"].get<double>(), 0);
}

TEST(BenchStep, TheProgramMeasuresEveryPhaseOfEveryRank) {
  const CommandResult result =
      engine({"bench", "step", "--model", "mlp", "--batch", "10", "--ranks", "2", "--steps", "7",
              "--warmup", "1", "--optimizer", "adamw", "--format", "json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json report = Json::parse(result.out);
  EXPECT_EQ(report["command"], "bench step");
  EXPECT_EQ(report["ranks"], 2);
  EXPECT_EQ(report["batch_per_rank"], 10);
  EXPECT_EQ(report["steps"], 7);
  EXPECT_GT(report["samples_per_s"].get<double>(), 0);
  ASSERT_EQ(report["rows"].size(), 12u);
  for (const Json& row : report["rows"]) {
    EXPECT_LE(row["min_ms"].get<double>(), row["p50_ms"].get<double>());
    EXPECT_LE(row["p50_ms"].get<double>(), row["p99_ms"].get<double>());
    if (row["phase"] == "forward" || row["phase"] == "backward" || row["phase"] == "update") {
      EXPECT_GT(row["min_ms"].get<double>(), 0) << row;
    }
  }
  EXPECT_DOUBLE_EQ(report["rows"][5]["p50_ms"].get<double>(), report["step_ms"].get<double>());
}

TEST(BenchStep, TablesForPeopleAndCsvForPrograms) {
  const std::vector<std::string> command{"bench", "step",    "--model", "mlp",     "--batch",
                                         "4",     "--steps", "3",       "--format"};
  const auto with = [&](const char* format) {
    std::vector<std::string> all = command;
    all.emplace_back(format);
    const CommandResult result = engine(all);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  const std::string csv = with("csv");
  EXPECT_EQ(lines(csv), 7u) << csv;
  EXPECT_EQ(csv.substr(0, csv.find('\n')), "rank,phase,min_ms,p50_ms,p99_ms,share");
  const std::string md = with("md");
  EXPECT_NE(md.find("| rank | phase"), std::string::npos) << md;
  EXPECT_NE(md.find("communication"), std::string::npos);
  EXPECT_NE(with("table").find("samples/s at the median step"), std::string::npos);
}

TEST(BenchScaling, OneRankFirstThenEachBackendAndNumber) {
  const CommandResult result =
      engine({"bench", "scaling", "--model", "mlp", "--batch", "8", "--backends", "shm,inproc",
              "--ranks", "3,1,2", "--mode", "strong", "--steps", "4", "--format", "json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json rows = Json::parse(result.out)["rows"];
  ASSERT_EQ(rows.size(), 5u) << result.out;
  EXPECT_EQ(rows[0]["ranks"], 1);
  EXPECT_DOUBLE_EQ(rows[0]["speedup"].get<double>(), 1);
  EXPECT_EQ(rows[1]["backend"], "shm");
  EXPECT_EQ(rows[2]["ranks"], 3);
  EXPECT_EQ(rows[3]["backend"], "inproc");
  for (const Json& row : rows) {
    EXPECT_EQ(row["global_batch"], 8) << "strong: the global batch stays";
    EXPECT_DOUBLE_EQ(row["speedup"].get<double>(),
                     row["samples_per_s"].get<double>() / rows[0]["samples_per_s"].get<double>());
  }
  const CommandResult weak = engine({"bench", "scaling", "--model", "mlp", "--batch", "8",
                                     "--ranks", "2", "--steps", "3", "--format", "csv"});
  ASSERT_EQ(weak.exit_code, 0) << weak.err;
  EXPECT_EQ(lines(weak.out), 3u);
  EXPECT_NE(weak.out.find(",2,16,"), std::string::npos)
      << "weak: the batch of a rank stays: " << weak.out;
  EXPECT_EQ(engine({"bench", "scaling", "--ranks", "0"}).exit_code, kExitUsage);
  EXPECT_EQ(engine({"bench", "scaling", "--backends", "telepathy"}).exit_code, kExitConfiguration);
}

TEST(BenchScaling, LeavesOutABackendThatIsNotHereAndSaysWhy) {
  const std::map<std::string, std::string> none{{"ENGINE_NCCL_LIBRARY", "/nonexistent/libnccl.so"}};
  const CommandResult result =
      engine({"bench", "scaling", "--model", "mlp", "--batch", "4", "--backends",
              "nccl,shm,checked:shm,nccl", "--ranks", "2", "--steps", "2", "--format", "json"},
             none);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json report = Json::parse(result.out);
  ASSERT_EQ(report["rows"].size(), 2u) << result.out;
  EXPECT_EQ(report["rows"][1]["backend"], "shm");
  ASSERT_EQ(report["left_out"].size(), 2u);
  EXPECT_EQ(report["left_out"][0]["backend"], "nccl");
  EXPECT_EQ(report["left_out"][1]["backend"], "checked:shm,nccl");
  EXPECT_NE(report["left_out"][0]["reason"].get<std::string>().find("nccl"), std::string::npos);
  EXPECT_NE(result.err.find("left out: nccl: "), std::string::npos) << result.err;
  const CommandResult table = engine({"bench", "scaling", "--model", "mlp", "--batch", "4",
                                      "--backends", "nccl", "--ranks", "2", "--steps", "2"},
                                     none);
  EXPECT_NE(table.out.find("\nleft out: nccl: "), std::string::npos) << table.out << table.err;
}

TEST(BenchIo, MeasuresDataAndCheckpointsBesideTheDisk) {
  const test_support::TemporaryDirectory folder;
  const auto measured = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"bench", "io", "--model", "convnet", "--synthetic-size", "200",
                               "--batch-size", "50", "--rounds", "2", "--seconds", "0.01", "--dir",
                               folder.path().string(), "--format", "json"});
    const CommandResult result = engine(more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out);
  };
  const Json report = measured({});
  EXPECT_EQ(report["command"], "bench io");
  EXPECT_GT(report["snapshot_bytes"].get<int>(), 2 * 29'034 * 4);  // parameters and momentum
  std::vector<std::string> names;
  for (const Json& row : report["rows"]) {
    names.push_back(row["what"].get<std::string>());
    EXPECT_GT(row["min"].get<double>(), 0) << row;
    EXPECT_LE(row["min"].get<double>(), row["median"].get<double>()) << row;
    EXPECT_LE(row["median"].get<double>(), row["max"].get<double>()) << row;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"data set loaded", "batches",
                                             "batches, augmented by crop,flip",
                                             "plain write and fsync", "snapshot written",
                                             "plain read", "snapshot read and checked"}));
  EXPECT_EQ(measured({"--augment", "cutout", "--cutout-size", "4"})["rows"][2]["what"],
            "batches, augmented as asked");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  const CommandResult nowhere = engine({"bench", "io", "--model", "mlp", "--synthetic-size", "20",
                                        "--seconds", "0.01", "--dir", folder / "none"});
  EXPECT_EQ(nowhere.exit_code, kExitCannotCreate) << nowhere.err;
}

TEST(BenchVerify, ComparesFilesOfEveryFormat) {
  const test_support::TemporaryDirectory folder;
  const CommandResult result = engine({"bench", "verify", "--mb", "5", "--rounds", "2", "--dir",
                                       folder.path().string(), "--format", "csv"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(lines(result.out), 9u) << result.out;
  for (const char* format : {"ckpt", "safetensors", "npz", "pth"}) {
    EXPECT_NE(result.out.find("\n\"" + std::string(format) + ", equal\","), std::string::npos)
        << result.out;
    EXPECT_NE(result.out.find("\n\"" + std::string(format) + ", one number differs\","),
              std::string::npos)
        << result.out;
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(BenchDemos, FourMethodsWithOneGlobalBatchAndEquallyManyIterations) {
  const std::vector<std::string> small{
      "--model", "convnet",          "--dataset", "synthetic",    "--synthetic-shape",
      "8x8x3",   "--synthetic-size", "50",        "--batch-size", "12"};
  std::vector<std::string> command{"bench", "demos", "--format", "json"};
  command.insert(command.end(), small.begin(), small.end());
  const CommandResult result = engine(command);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json report = Json::parse(result.out);
  EXPECT_EQ(report["global_batch"], 12);
  ASSERT_EQ(report["rows"].size(), 4u);
  const std::vector<std::tuple<std::string, int, int>> expected{
      {"single", 1, 1}, {"v1", 1, 2}, {"v2", 2, 1}, {"v3", 3, 2}};
  for (std::size_t i = 0; i < 4; ++i) {
    const Json& row = report["rows"][i];
    EXPECT_EQ(std::tuple(row["method"].get<std::string>(), row["processes"].get<int>(),
                         row["devices"].get<int>()),
              expected[i]);
    EXPECT_EQ(row["iterations"], 5) << "50 samples in batches of 12";
    EXPECT_EQ(row["measured"], 5);
    EXPECT_GT(row["epoch_s"].get<double>(), 0);
    EXPECT_GT(row["batch_s"].get<double>(), 0);
  }
  command = {"bench", "demos", "--limit-steps", "2"};
  command.insert(command.end(), small.begin(), small.end());
  const CommandResult limited = engine(command);
  ASSERT_EQ(limited.exit_code, 0) << limited.err;
  EXPECT_NE(limited.out.find("extrapolated from 2 of 5 iterations"), std::string::npos)
      << limited.out;
  EXPECT_NE(limited.out.find("~0:0"), std::string::npos) << limited.out;
  EXPECT_VALUES(limited.err, "demos: v3, 3 x 2");
  command[3] = "1000000000";  // before it trains, not behind it
  const CommandResult beyond = engine(command);
  EXPECT_EQ(beyond.exit_code, kExitUsage);
  EXPECT_NE(beyond.err.find("--limit-steps 1000000000: an epoch has 5 iterations"),
            std::string::npos)
      << beyond.err;
}

TEST(BenchDemos, TimesAreWrittenAsInTheTableOfTheDemos) {
  DemoRow row{.method = "single",
              .iterations = 196,
              .measured = 196,
              .epoch_s = 153.7,
              .batch_s = 1.0449,
              .rate = 1};
  EXPECT_EQ(epoch_text(row), "2:34");
  EXPECT_EQ(batch_text(row.batch_s), "1.04s");
  EXPECT_EQ(batch_text(0.00123), "0.0012s");
  row.measured = 10;
  EXPECT_EQ(epoch_text(row), "~2:34");
  BenchHeading heading;
  heading.machine.allowed_cores = 2;
  const std::string table =
      demos_text(heading, "about", 256, {row}, tools::ReportFormat::kMarkdown);
  EXPECT_LACKS(table, "Load");
  heading.machine.load = 1.5;
  EXPECT_VALUES(demos_text(heading, "about", 256, {row}, tools::ReportFormat::kTable),
                "Load 1.5 2 cores");
  EXPECT_VALUES(table, "| method | epoch time | batch time |");
}

TEST(BenchStep, OptionsThatWouldChangeNothingAreRefused) {
  const test_support::TemporaryDirectory folder;
  for (const std::string benchmark : {"step", "demos", "scaling"}) {
    for (const std::vector<std::string>& option :
         {std::vector<std::string>{"--save-dir", folder / "run"},
          {"--metrics", folder / "m.jsonl"},
          {"--elastic", "1:2"}}) {
      std::vector<std::string> command{"bench", benchmark, "--model", "mlp"};
      command.insert(command.end(), option.begin(), option.end());
      const CommandResult result = engine(command);
      EXPECT_EQ(result.exit_code, kExitUsage) << benchmark << option[0];
      EXPECT_VALUES(result.err, option[0] + ": benchmark");
      EXPECT_FALSE(std::filesystem::exists(folder / "run"));
    }
  }
}

TEST(BenchDemos, CifarThatWasAskedForAndIsMissingIsAnError) {
  const CommandResult result = engine(
      {"bench", "demos", "--model", "mlp", "--dataset", "cifar10", "--data-dir", "/nonexistent"});
  EXPECT_EQ(result.exit_code, kExitBadData);
  EXPECT_NE(result.err.find("/nonexistent"), std::string::npos) << result.err;
}

TEST(Bench, SaysWhatItCanMeasure) {
  const CommandResult unknown = engine({"bench", "everything"});
  EXPECT_EQ(unknown.exit_code, kExitUsage);
  EXPECT_NE(unknown.err.find("demos"), std::string::npos) << unknown.err;
  EXPECT_EQ(engine({"bench"}).exit_code, kExitUsage);
  EXPECT_EQ(engine({"bench", "--help"}).exit_code, 0);
}

// The largest checkpoints are gigabytes.
TEST(BenchSave, LeavesNothingBehindWhenItIsStopped) {
  const test_support::TemporaryDirectory folder;
  const CommandResult run = test_support::run_command(
      {"/bin/sh", "-c",
       "\"$0\" bench save --model mlp --rounds 1000000 --dir \"$1\" & p=$!; "
       "until ls \"$1\"/bench-*/plain 2>/dev/null >&2 || ! kill -0 $p; do sleep 0.02; done; "
       "kill -TERM $p; wait $p",
       test_support::engine_binary(), folder.path().string()});
  EXPECT_EQ(run.exit_code, 128 + SIGTERM) << run.err;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
