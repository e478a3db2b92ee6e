// Training on tables and other data sets with the real program.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/test_support.h"

namespace {

using test_support::CommandResult;
using test_support::engine_binary;
using test_support::run_command;

CommandResult engine(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), engine_binary());
  return run_command(arguments, {}, 60'000);
}

double last_accuracy(const std::string& output) {
  const std::size_t at = output.rfind("accuracy ");
  return at == std::string::npos ? -1 : std::stod(output.substr(at + 9));
}

struct Table {
  const char *file, *label;
};
class PublicTables : public ::testing::TestWithParam<Table> {};
INSTANTIATE_TEST_SUITE_P(All, PublicTables,
                         ::testing::Values(Table{"iris", ""}, Table{"wine", ""}, Table{"breast-cancer-wisconsin", ""},
                                           Table{"penguins", "species"}),
                         [](const auto& table) { return std::string(table.param.file).substr(0, 4); });

TEST_P(PublicTables, AreLearntTo95PercentOfUnseenRowsAndEvaluatedAlike) {
  const std::string directory = test_support::data_directory("csv");
  if (directory.empty()) GTEST_SKIP() << "no data set csv";
  const test_support::TemporaryDirectory folder;
  std::vector<std::string> arguments{"train",
                                     "--model",
                                     "mlp",
                                     "--dataset",
                                     "csv",
                                     "--annotations",
                                     directory + "/" + GetParam().file + ".csv",
                                     "--epochs",
                                     "20",
                                     "--lr",
                                     "0.01",
                                     "--weight-decay",
                                     "0.01",
                                     "--seed",
                                     "3",
                                     "--batch-size",
                                     "16",
                                     "--threads",
                                     "1",
                                     "--save-dir",
                                     folder / "ckpt"};
  if (*GetParam().label != '\0') arguments.insert(arguments.end(), {"--label-column", GetParam().label});
  const CommandResult trained = engine(arguments);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_GE(last_accuracy(trained.out), 95) << trained.out;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "ckpt")) {
    if (entry.path().extension() != ".ckpt") continue;
    const CommandResult evaluated = engine({"eval", entry.path().string(), "--threads", "1"});
    ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
    EXPECT_EQ(last_accuracy(evaluated.out), last_accuracy(trained.out));
    return;
  }
  FAIL() << "no checkpoint";
}

TEST(DataErrors, EndWith65AndOneLine) {
  const test_support::TemporaryDirectory folder;
  test_support::write_text(folder / "bad.csv", "1,2,a\n3,b\n");
  const CommandResult result = engine({"train", "--model", "mlp", "--dataset", "csv", "--data-dir", folder.path().string()});
  EXPECT_EQ(result.exit_code, 65);
  EXPECT_EQ(result.err, "engine: error: " + (folder / "bad.csv") + ", row 2 (line 2): found 2 fields, expected 3 as in row 1\n");
}

}  // namespace
