// Training on tables and other data sets with the real program.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "tests/io/data/sources/png_bytes.h"
#include "tests/support/test_support.h"
#include "tools/report/output/json_file.h"

namespace {

using test_support::CommandResult;
using test_support::engine;

double last_accuracy(const std::string& output) {
  std::size_t at = output.rfind(": loss ");  // of an evaluation
  if (at != std::string::npos) at = output.find("accuracy ", at);
  return at == std::string::npos ? -1 : std::stod(output.substr(at + 9));
}

struct Table {
  const char *file, *label;
};
void PrintTo(const Table& table, std::ostream* out) { *out << table.file; }  // for the test library
class PublicTables : public ::testing::TestWithParam<Table> {};
INSTANTIATE_TEST_SUITE_P(All, PublicTables,
                         ::testing::Values(Table{"iris", ""}, Table{"wine", ""},
                                           Table{"breast-cancer-wisconsin", ""},
                                           Table{"penguins", "species"}),
                         [](const auto& table) {
                           return std::string(table.param.file).substr(0, 4);
                         });

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
  if (*GetParam().label != '\0')
    arguments.insert(arguments.end(), {"--label-column", GetParam().label});
  const CommandResult trained = engine(arguments);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_GE(last_accuracy(trained.out), 95) << trained.out;
  const std::string newest = io::find_newest_checkpoint(folder / "ckpt", nullptr);
  const CommandResult evaluated = engine({"eval", newest, "--threads", "1"});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
  EXPECT_EQ(last_accuracy(evaluated.out), last_accuracy(trained.out));
}

TEST(Tables, AreDescribedOnceAndWhatWasLeftOutIsKnownToEval) {
  const test_support::TemporaryDirectory folder;
  std::string rows = "id;size;kind\n";
  for (int i = 0; i < 40; ++i)
    rows += std::to_string(i) + ";" + std::to_string(i % 5) + (i % 2 == 0 ? ";a\n" : ";b\n");
  test_support::write_text(folder / "rows.csv", rows);
  std::vector<std::string> arguments{"train",
                                     "--model",
                                     "mlp",
                                     "--dataset",
                                     "csv",
                                     "--data-dir",
                                     folder.path().string(),
                                     "--spawn",
                                     "2",
                                     "--batch-size",
                                     "8",
                                     "--threads",
                                     "1",
                                     "--save-dir",
                                     folder / "run"};
  const CommandResult all = engine(arguments);
  ASSERT_EQ(all.exit_code, 0) << all.err;
  EXPECT_NE(all.out.find("Columns of rows.csv: label kind (2 classes); numbers: id, size; "
                         "separated by ';'\n"),
            std::string::npos)
      << all.out;
  EXPECT_EQ(all.out.find("Columns of"), all.out.rfind("Columns of"));
  EXPECT_NE(all.err.find("engine: warning: rows.csv: id has another value in every row"),
            std::string::npos)
      << all.err;
  std::filesystem::remove_all(folder / "run");
  arguments.insert(arguments.end(), {"--ignore-columns", "id", "--separator", ";"});
  const CommandResult fewer = engine(arguments);
  ASSERT_EQ(fewer.exit_code, 0) << fewer.err;
  EXPECT_NE(fewer.out.find("left out: id (by option)"), std::string::npos) << fewer.out;
  EXPECT_EQ(fewer.err.find("warning"), std::string::npos) << fewer.err;
  const CommandResult large =
      engine({"train", "--model", "mlp", "--dataset", "synthetic", "--limit", "64", "--batch-size",
              "100", "--epochs", "1", "--threads", "1", "--save-dir", folder / "large"});
  EXPECT_EQ(large.exit_code, 0) << large.err;
  EXPECT_NE(large.err.find("engine: warning: a batch of 100 samples is more than the 64 training "
                           "samples: each step takes all of them"),
            std::string::npos)
      << large.err;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "run")) {
    if (entry.path().extension() != ".ckpt") continue;
    const CommandResult evaluated = engine({"eval", entry.path().string(), "--threads", "1"});
    EXPECT_EQ(evaluated.exit_code, 0) << evaluated.err;
    return;
  }
  FAIL() << "no checkpoint";
}

TEST(SamplerCheck, SaysWhatItHasProved) {
  const auto train = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"train",     "--model",          "mlp",  "--dataset",
                                       "synthetic", "--synthetic-size", "1001", "--spawn",
                                       "2",         "--batch-size",     "100",  "--epochs",
                                       "1",         "--threads",        "1",    "--check-sampler"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult result = engine(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  const std::string each = "\nSampler: each of 1,001 samples is in the share of ",
                    epochs = " of 2 in each of epochs 1 to 2";
  for (const auto& [rule, line] : std::vector<std::pair<std::string, std::string>>{
           {"join", "exactly one rank" + epochs + "\n"},
           {"drop", "one rank at most" + epochs + "; 1 sample left out of an epoch\n"},
           {"pad", "one rank at least" + epochs + "; 1 sample used twice to fill it\n"}}) {
    const std::string out = train({"--uneven", rule});
    EXPECT_NE(out.find(each + line), std::string::npos) << rule << "\n" << out;
  }
}

TEST(RateScale, IsShownAsItWasComputed) {
  for (const auto& [rule, text] : std::vector<std::pair<std::string, std::string>>{
           {"none", " lr 0.1 constant"},
           {"linear", " lr 0.2 (0.1 x 2 ranks) constant"},
           {"sqrt", " lr 0.141421 (0.1 x sqrt(2 ranks)) constant"}}) {
    const CommandResult result = engine({"train", "--model", "mlp", "--dataset", "synthetic",
                                         "--synthetic-size", "100", "--spawn", "2", "--threads",
                                         "1", "--steps", "1", "--lr", "0.1", "--lr-scale", rule});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(result.out.find(text), std::string::npos) << result.out;
  }
}

TEST(SpawnAlone, StartsARankForEachProcessorAndSaysWhy) {
  const std::vector<std::string> arguments{"train",     "--spawn",   "--model",          "mlp",
                                           "--dataset", "synthetic", "--synthetic-size", "64",
                                           "--steps",   "1",         "--threads",        "1"};
  const CommandResult cores = engine(arguments, {{"CUDA_VISIBLE_DEVICES", ""}});
  ASSERT_EQ(cores.exit_code, 0) << cores.err;
  EXPECT_NE(cores.err.find("core that this process may use: no GPU is visible"), std::string::npos)
      << cores.err;
  std::vector<std::string> on_cpu = arguments;
  on_cpu.insert(on_cpu.end(), {"--device", "cpu", "--dry-run"});
  const CommandResult kept = engine(on_cpu, {{"CUDA_VISIBLE_DEVICES", "0,1,2"}});
  EXPECT_NE(kept.err.find("core that this process may use (--device cpu)"), std::string::npos)
      << kept.err;
}

TEST(FileShards, AreToldByEveryRankAndAreTheTrainingPart) {
  const test_support::TemporaryDirectory folder;
  std::string rows;
  for (int i = 0; i < 20; ++i) rows += std::to_string(i) + "," + (i % 2 == 0 ? "a" : "b") + "\n";
  test_support::write_text(folder / "rows.csv", rows);
  const CommandResult result =
      engine({"train", "--model", "mlp", "--dataset", "csv", "--data-dir", folder.path().string(),
              "--test-share", "0", "--shard", "file", "--spawn", "3", "--batch-size", "6",
              "--threads", "1"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* line :
       {"shard id: 0, world: 3, start: 0, end: 6\n", "shard id: 1, world: 3, start: 6, end: 13\n",
        "shard id: 2, world: 3, start: 13, end: 20\n"})
    EXPECT_NE(result.out.find(line), std::string::npos) << line << result.out;
}

// The learning rate leaves the weights as they are: an epoch's sum of losses tells which samples it
// has used.
TEST(FileShards, AreDividedAmongOtherRanksInTheMiddleOfAnEpoch) {
  const test_support::TemporaryDirectory folder;
  constexpr int kSize = 37, kBatch = 6;
  const auto run = [&](const char* name, const char* ranks, const char* steps,
                       const std::vector<std::string>& more) {
    std::vector<std::string> words{"train",
                                   "--model",
                                   "mlp",
                                   "--dataset",
                                   "synthetic",
                                   "--synthetic-shape",
                                   "6x6x1",
                                   "--threads",
                                   "1",
                                   "--dtype",
                                   "f64",
                                   "--lr",
                                   "1e-15",
                                   "--spawn",
                                   ranks,
                                   "--steps",
                                   steps,
                                   "--eval-every",
                                   "0",
                                   "--log-every",
                                   "1",
                                   "--save-dir",
                                   folder / name,
                                   "--synthetic-size",
                                   std::to_string(kSize),
                                   "--batch-size",
                                   std::to_string(kBatch)};
    words.insert(words.end(), more.begin(), more.end());
    return engine(words);
  };
  const auto sum_of_losses = [&](const char* name) {
    double sum = 0;
    int steps = 0;
    std::istringstream lines(test_support::read_text(folder / name + "/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const auto entry = tools::parse_json(line, "metrics");
      if (entry["event"] != "step") continue;
      sum += entry["loss"].get<double>() * std::min(kBatch, kSize - steps++ * kBatch);
    }
    EXPECT_EQ(steps, 7);
    return sum;
  };
  ASSERT_EQ(run("whole", "1", "7", {}).exit_code, 0);
  const double once = sum_of_losses("whole");
  for (const char* name : {"first", "again"}) {
    const std::vector<std::string> file{"--shard", "file"},
        resumed{"--shard", "file", "--resume", "auto"};
    ASSERT_EQ(run(name, "2", "3", file).exit_code, 0);
    const CommandResult three = run(name, "3", "5", resumed);
    ASSERT_EQ(three.exit_code, 0) << three.err;
    EXPECT_NE((three.out + three.err)
                  .find("--shard file: 19 of 37 samples of epoch 1 are left of the parts of 2 "
                        "ranks; 3 ranks divide them among themselves"),
              std::string::npos)
        << three.out << three.err;
    ASSERT_EQ(run(name, "3", "6", resumed).exit_code, 0);
    ASSERT_EQ(run(name, "2", "7", resumed).exit_code, 0);
    EXPECT_NEAR(sum_of_losses(name), once, 1e-9 * once);
  }
  const CommandResult same =
      engine({"verify", "--only", "all", folder / "first", folder / "again"});
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
}

TEST(Stage, OneRankOfAHostCopiesAndAllReadTheCopy) {
  const test_support::TemporaryDirectory folder;
  std::filesystem::create_directories(folder / "far");
  std::string rows;
  for (int i = 0; i < 40; ++i) rows += std::to_string(i) + "," + (i % 2 == 0 ? "a" : "b") + "\n";
  test_support::write_text(folder / "far/rows.csv", rows);
  std::vector<std::string> arguments{
      "train", "--model",      "mlp", "--dataset", "csv", "--data-dir", folder / "far", "--spawn",
      "3",     "--batch-size", "6",   "--threads", "1",   "--dtype",    "f64"};
  const auto final_loss = [](const std::string& out) { return out.substr(out.rfind("loss "), 12); };
  const CommandResult plain = engine(arguments);
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  arguments.insert(arguments.end(), {"--stage", folder / "near"});
  for (int run = 0; run < 2; ++run) {
    const CommandResult staged = engine(arguments);
    ASSERT_EQ(staged.exit_code, 0) << staged.err;
    EXPECT_EQ(final_loss(staged.out), final_loss(plain.out));
  }
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / "near")) {
    if (!entry.is_regular_file()) continue;
    ++files;
    EXPECT_EQ(test_support::read_text(entry.path().string()), rows);
  }
  EXPECT_EQ(files, 1);
  std::filesystem::remove(folder / "far/rows.csv");
  const CommandResult none = engine(arguments);
  EXPECT_EQ(none.exit_code, 65) << none.err;
  EXPECT_NE(none.err.find("cannot stage " + (folder / "far")), std::string::npos) << none.err;
}

// `eval` knows nothing of augmentation: what it finds must be what the training's own evaluation
// found.
TEST(Augmentation, IsNeverInEvaluation) {
  const test_support::TemporaryDirectory folder;
  std::vector<std::string> accuracies;
  for (const char* ranks : {"1", "2"}) {
    const std::string place = folder / ranks;
    const CommandResult trained = engine({"train",
                                          "--model",
                                          "mlp",
                                          "--dataset",
                                          "synthetic",
                                          "--synthetic-shape",
                                          "8x8x3",
                                          "--synthetic-size",
                                          "60",
                                          "--batch-size",
                                          "12",
                                          "--epochs",
                                          "2",
                                          "--augment",
                                          "crop,flip,cutout",
                                          "--cutout-size",
                                          "4",
                                          "--threads",
                                          "1",
                                          "--spawn",
                                          ranks,
                                          "--save-dir",
                                          place,
                                          "--dtype",
                                          "f64"});
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    const std::string latest = test_support::read_text(place + "/latest");
    const CommandResult evaluated =
        engine({"eval", place + "/" + latest.substr(0, latest.find('\n')), "--threads", "1"});
    ASSERT_EQ(evaluated.exit_code, 0) << evaluated.err;
    const auto tail = [](const std::string& out) {
      return out.substr(out.rfind("loss "), out.find(')', out.rfind("loss ")) - out.rfind("loss "));
    };
    EXPECT_EQ(tail(evaluated.out), tail(trained.out));
    accuracies.push_back(tail(evaluated.out));
  }
  EXPECT_EQ(accuracies[0], accuracies[1]);  // and the same images were seen by one rank and by two
}

TEST(Augmentation, ListsAreChecked) {
  const auto said = [](std::vector<std::string> more) {
    std::vector<std::string> arguments{"train", "--model", "mlp", "--dataset", "synthetic"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult result = engine(arguments);
    EXPECT_EQ(result.exit_code, 78) << result.out;
    return result.err;
  };
  EXPECT_NE(said({"--augment", "crop,flop"}).find("crop,flop"), std::string::npos);
  EXPECT_NE(said({"--augment", "crop,crop"}).find("at most once"), std::string::npos);
  EXPECT_NE(said({"--augment", "flip", "--cutout-size", "8"})
                .find("--cutout-size requires --augment cutout"),
            std::string::npos);
  EXPECT_NE(said({"--crop-padding", "2"}).find("--crop-padding requires --augment crop"),
            std::string::npos);
}

#ifdef HAS_PNG
// Red and blue images of several sizes: one step of a linear model could tell them apart.
class ImageFolders : public ::testing::Test {
 protected:
  ImageFolders() {
    for (std::uint8_t i = 0; i < 12; ++i)
      for (const std::string name : {"blue", "red"})
        for (const std::string part : {"train/", "val/"}) {
          const auto red = static_cast<std::uint8_t>(name == "red" ? 200 + i : 10),
                     blue = static_cast<std::uint8_t>(210 - red + i);
          std::filesystem::create_directories(folder_ / part + name);
          test_support::write_text(
              folder_ / part + name + "/" + static_cast<char>('a' + i) + ".png",
              test_support::plain_png(20u + i, 30u - i, red, 50, blue));
        }
  }
  CommandResult train(std::vector<std::string> more) {
    more.insert(more.begin(), {"train", "--model", "mlp", "--dataset", "images", "--data-dir",
                               folder_.path().string(), "--image-size", "8", "--batch-size", "6",
                               "--threads", "1", "--lr", "0.01", "--epochs", "3"});
    return engine(more);
  }
  test_support::TemporaryDirectory folder_;
};

TEST_F(ImageFolders, AreLearntByAnyNumberOfRanksAndWorkers) {
  std::set<std::string> results;
  for (const char* ranks : {"1", "3"})
    for (const char* workers : {"0", "3"}) {
      const CommandResult result = train({"--augment", "resized-crop,flip", "--spawn", ranks,
                                          "--workers", workers, "--dtype", "f64"});
      ASSERT_EQ(result.exit_code, 0) << result.err;
      EXPECT_EQ(last_accuracy(result.out), 100) << result.out;
      results.insert(result.out.substr(result.out.rfind("loss "), 12));
    }
  EXPECT_EQ(results.size(), 1u) << *results.begin() << *results.rbegin();
}

TEST_F(ImageFolders, ABrokenImageEndsWith65AndItsName) {
  test_support::write_text(folder_ / "train/red/c.png", "GIF89a");
  const CommandResult result = train({});
  EXPECT_EQ(result.exit_code, 65);
  EXPECT_TRUE(result.err.ends_with("engine: error: " + (folder_ / "train/red/c.png") +
                                   ": neither PNG nor JPEG: the file begins with 47 49 46 38, "
                                   "a GIF image: convert it to PNG first\n"))
      << result.err;
}

#endif

TEST(DataErrors, EndWith65AndOneLine) {
  const test_support::TemporaryDirectory folder;
  test_support::write_text(folder / "bad.csv", "1,2,a\n3,b\n");
  const CommandResult result =
      engine({"train", "--model", "mlp", "--dataset", "csv", "--data-dir", folder.path().string()});
  EXPECT_EQ(result.exit_code, 65);
  EXPECT_EQ(result.err, "engine: error: " + (folder / "bad.csv") +
                            ", row 2 (line 2): found 2 fields, expected 3 as in row 1\n");
}

}  // namespace
