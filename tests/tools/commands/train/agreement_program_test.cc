// Ranks that were given different data, models or processors, with the real program: what each of
// them says, and that nobody is left waiting.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <thread>

#include "backends/group.h"
#include "engine/ops/common/cpu_dispatch.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/tools/commands/program.h"

namespace {

using program::expect_words;
using test_support::call;
using test_support::CommandResult;
using test_support::engine;
using test_support::TemporaryDirectory;
using Arguments = std::vector<std::string>;
using Environment = std::map<std::string, std::string>;

struct Start {
  Arguments arguments = {};
  Environment environment = {};
};

// Two ranks that meet through a file in `folder`.
std::vector<CommandResult> start_two(const TemporaryDirectory& folder, const Start& first,
                                     const Start& second, const Arguments& both = {}) {
  std::vector<CommandResult> results(2);
  const auto run = [&](std::size_t rank, const Start& start) {
    Arguments arguments{"train",
                        "--rank",
                        std::to_string(rank),
                        "--world-size",
                        "2",
                        "--init-method",
                        "file://" + (folder / "meet"),
                        "--threads",
                        "1",
                        "--flight-dir",
                        folder / "flight"};
    arguments.insert(arguments.end(), both.begin(), both.end());
    arguments.insert(arguments.end(), start.arguments.begin(), start.arguments.end());
    results[rank] = engine(arguments, start.environment);
  };
  std::thread other([&] { run(1, second); });
  run(0, first);
  other.join();
  return results;
}

// The same with a folder of data for each: `make` fills it.
std::vector<CommandResult> start_with_data(
    const std::function<void(const std::string& folder, int rank)>& make, const Arguments& both) {
  const TemporaryDirectory folder;
  std::vector<Start> starts;
  for (const int rank : {0, 1}) {
    const std::string data = folder / ("data" + std::to_string(rank));
    std::filesystem::create_directory(data);
    make(data, rank);
    starts.push_back({{"--data-dir", data}});
  }
  return start_two(folder, starts[0], starts[1], both);
}

void expect_on_all(const std::vector<CommandResult>& results, int code,
                   const std::vector<std::string>& words) {
  for (const CommandResult& result : results) {
    EXPECT_EQ(result.exit_code, code) << result.err;
    expect_words(result.err, words);
    EXPECT_LACKS(result.err, "last collectives");
  }
}

std::string big_endian(std::size_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

// In MNIST's format: noise with labels that count up.
void write_images(const std::string& folder, std::size_t count,
                  const std::function<void(std::string& labels)>& change = {}) {
  for (const char* part : {"train", "t10k"}) {
    std::string pixels = big_endian(2051) + big_endian(count) + big_endian(28) + big_endian(28),
                labels;
    for (std::size_t i = 0; i < count; ++i) {
      labels += static_cast<char>(i % 10);
      for (std::size_t k = 0; k < 784; ++k) pixels += static_cast<char>(i * 31 + k * 7);
    }
    if (change && std::string(part) == "train") change(labels);
    test_support::write_text(folder + "/" + part + "-images-idx3-ubyte", pixels);
    test_support::write_text(folder + "/" + part + "-labels-idx1-ubyte",
                             big_endian(2049) + big_endian(count) + labels);
  }
}

void write_table(const std::string& folder, int rows, int changed_row = -1) {
  std::string text = "a,b,kind\n";
  for (int i = 0; i < rows; ++i)
    text += std::to_string(i % 7) + "," + (i == changed_row ? "99" : std::to_string(i % 5)) + "," +
            (i % 2 == 0 ? "x\n" : "y\n");
  test_support::write_text(folder + "/rows.csv", text);
}

const Arguments kImages{"--model", "mlp", "--dataset", "mnist", "--batch-size", "10"};
const Arguments kTable{"--model", "mlp", "--dataset", "csv", "--batch-size", "8"};

TEST(Agreement, RanksWithShuffledLabelsAreTold) {
  const auto results = start_with_data(
      [](const std::string& folder, int rank) {
        write_images(folder, 40, [&](std::string& labels) {
          if (rank == 1) std::swap(labels[3], labels[4]);
        });
      },
      kImages);
  expect_on_all(results, 76,
                {"engine: error: different data: training labels: rank 0 digest rank 1 digest"});
}

TEST(Agreement, AnotherEncryptionIsToldWithBothValues) {
  const TemporaryDirectory folder;
  const auto results =
      start_two(folder, {{"--encrypt", "on"}}, {{"--encrypt", "off"}},
                {"--model", "mlp", "--dataset", "synthetic", "--backend", "socket"});
  for (const CommandResult& result : results) {
    EXPECT_EQ(result.exit_code, 76) << result.err;
    expect_words(result.err, {"encrypt", "on", "off", "rank 0", "rank 1"});
  }
}

TEST(Agreement, OneImageFewerIsToldWithBothCounts) {
  const auto results = start_with_data(
      [](const std::string& folder, int rank) { write_images(folder, rank == 1 ? 39 : 40); },
      kImages);
  expect_on_all(results, 76,
                {"training samples: rank 0 (host ", ") has 40, rank 1 (host ",
                 ") has 39; test samples: 40 and 39"});
}

TEST(Agreement, AChangedCellOfATableIsTold) {
  const auto results = start_with_data(
      [](const std::string& folder, int rank) { write_table(folder, 60, rank == 1 ? 30 : -1); },
      kTable);
  expect_on_all(results, 76, {"different data: ", "data: ", "rank 0 (host ", "rank 1 (host "});
}

class AgreementOn : public ::testing::TestWithParam<std::string> {};
std::vector<std::string> backends_between_processes() {
  std::vector<std::string> names;
  for (const backends::BackendInfo& backend : backends::list_backends())
    if (backend.usable && !backend.device_memory && backend.name != "inproc" &&
        backend.name != "single")
      names.push_back(backend.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Backends, AgreementOn, ::testing::ValuesIn(backends_between_processes()),
                         [](const auto& each) { return test_support::test_name(each.param); });

TEST_P(AgreementOn, DataOfOtherLengthEndTheStart) {
  Arguments both = kTable;
  both.insert(both.end(), {"--backend", GetParam(), "--timeout", "600"});
  const auto results = start_with_data(
      [](const std::string& folder, int rank) { write_table(folder, rank == 1 ? 90 : 60); }, both);
  expect_on_all(results, 76,
                {"training samples: rank 0 (host ", ") has 48, rank 1 (host ", ") has 72"});
}

TEST(Agreement, WhatOneRankCannotReadEndsAllWithItsReason) {
  const auto results = start_with_data(
      [](const std::string& folder, int rank) {
        write_images(folder, 40);
        if (rank == 1) std::filesystem::remove(folder + "/train-labels-idx1-ubyte");
      },
      kImages);
  EXPECT_EQ(results[0].exit_code, 65) << results[0].err;
  EXPECT_EQ(results[1].exit_code, 65) << results[1].err;
  expect_words(results[0].err, {"engine: error: rank 1 (host ", "train-labels-idx1-ubyte"});
  expect_words(results[1].err, {"train-labels-idx1-ubyte"});
}

TEST(Agreement, AnInstructionSetThatOneRankLacksEndsAllWithItsReason) {
  const TemporaryDirectory folder;
  const auto results = start_two(folder, {}, {{}, {{"ENGINE_ISA", "mmx"}}},
                                 {"--model", "mlp", "--dataset", "synthetic"});
  expect_on_all(results, 78, {"unknown instruction set 'mmx' (ENGINE_ISA)"});
  expect_words(results[0].err, {"engine: error: rank 1 (host "});
}

// Under a launcher the cause is the last line, and the exit code its own.
TEST(Agreement, IsReachedUnderALauncherToo) {
  const TemporaryDirectory folder;
  write_table((std::filesystem::create_directory(folder / "0"), folder / "0"), 60);
  write_table((std::filesystem::create_directory(folder / "1"), folder / "1"), 59);
  const CommandResult result =
      call("launch --nproc-per-node 2 -- /bin/sh -c",
           "exec \"$0\" train --model mlp --dataset csv --batch-size 8 --threads 1 --data-dir " +
               folder.path().string() + "/$RANK",
           test_support::engine_binary());
  EXPECT_EQ(result.exit_code, 76) << result.err;
  expect_words(result.err, {"training samples: rank 0 (host ", "exit code 76"});
}

TEST(Agreement, LayerListsThatDifferInAnOptionAreRefused) {
  const TemporaryDirectory folder;
  for (const char* rate : {"0.10", "0.5"}) {
    const std::string name = folder / std::string(rate);
    std::filesystem::create_directory(name);
    test_support::write_text(name + "/net.toml",
                             "[[layer]]\nkind = \"flatten\"\n[[layer]]\nkind = \"dropout\"\nname = "
                             "\"drop\"\nrate = " +
                                 std::string(rate) +
                                 "\n[[layer]]\nkind = \"dense\"\nname = \"fc\"\nout = "
                                 "\"classes\"\n");
  }
  // The same name in two working directories.
  std::vector<CommandResult> results(2);
  const auto run = [&](std::size_t rank, const std::string& directory) {
    results[rank] = test_support::run_command(
        {"/bin/sh", "-c",
         "cd " + directory + " && exec " + test_support::engine_binary() +
             " train --model net.toml --dataset synthetic --synthetic-size 40 --threads 1 "
             "--world-size 2 --rank " +
             std::to_string(rank) + " --init-method file://" + (folder / "meet")});
  };
  std::thread other([&] { run(1, folder / "0.5"); });
  run(0, folder / "0.10");
  other.join();
  expect_on_all(results, 76,
                {"net.toml, layer 2: rank 0 (host ", "rate = 0.1, rank 1 (host ", "rate = 0.5"});
}

TEST(Agreement, OtherInstructionSetsAreToldOnceAndReplicasStayEqual) {
  using engine::ops::CpuIsa, engine::ops::is_supported;
  if (!is_supported(CpuIsa::kBaseline) || !is_supported(CpuIsa::kAvx2))
    GTEST_SKIP() << "this CPU, or this build, has one instruction set";
  const TemporaryDirectory folder;
  const auto results =
      start_two(folder, {{}, {{"ENGINE_ISA", "baseline"}}}, {{}, {{"ENGINE_ISA", "avx2"}}},
                {"--model", "mlp", "--dataset", "synthetic", "--synthetic-size", "60",
                 "--batch-size", "10", "--verify-every", "1"});
  for (const CommandResult& result : results) EXPECT_EQ(result.exit_code, 0) << result.err;
  expect_words(results[0].err, {"engine: instruction sets differ: rank 0 (host ",
                                ") computes with baseline, rank 1 (host ", ") with avx2"});
  EXPECT_LACKS(results[1].err, "instruction sets");
}

TEST(Agreement, OfTheSameDataSaysNothing) {
  const auto results =
      start_with_data([](const std::string& folder, int) { write_table(folder, 60); }, kTable);
  for (const CommandResult& result : results) EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_LACKS(results[0].err, "differ");
}

}  // namespace
