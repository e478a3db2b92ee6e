// Training on tables and other data sets with the real program.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "io/checkpoint/checkpoint_directory.h"
#include "tests/io/data/images/png_bytes.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/running_program.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/program.h"
#include "tools/report/output/json_file.h"

namespace {

using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::engine;
using test_support::expect_success;

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
  std::vector<std::string> arguments = argv(
      "train --model mlp --dataset csv --annotations", directory + "/" + GetParam().file + ".csv",
      "--epochs 20 --lr 0.01 --weight-decay 0.01 --seed 3 --batch-size 16 --threads 1 --save-dir",
      folder / "ckpt");
  if (*GetParam().label != '\0')
    arguments.insert(arguments.end(), {"--label-column", GetParam().label});
  const CommandResult trained = expect_success(engine(arguments));
  EXPECT_GE(last_accuracy(trained.out), 95) << trained.out;
  const std::string newest = io::find_newest_checkpoint(folder / "ckpt", nullptr);
  const CommandResult evaluated = expect_success(call("eval", newest, "--threads 1"));
  EXPECT_EQ(last_accuracy(evaluated.out), last_accuracy(trained.out));
}

TEST(Tables, AreDescribedOnceAndWhatWasLeftOutIsKnownToEval) {
  const test_support::TemporaryDirectory folder;
  std::string rows = "id;size;kind\n";
  for (int i = 0; i < 40; ++i)
    rows += std::to_string(i) + ";" + std::to_string(i % 5) + (i % 2 == 0 ? ";a\n" : ";b\n");
  test_support::write_text(folder / "rows.csv", rows);
  std::vector<std::string> arguments =
      argv("train --model mlp --dataset csv --data-dir", folder.path().string(),
           "--spawn 2 --batch-size 8 --threads 1 --save-dir", folder / "run");
  const CommandResult all = expect_success(engine(arguments));
  EXPECT_CONTAINS(all.out,
                  "Columns of rows.csv: label kind (2 classes); numbers: id, size; "
                  "separated by ';'\n");
  EXPECT_EQ(all.out.find("Columns of"), all.out.rfind("Columns of"));
  EXPECT_VALUES(all.err, "warning rows.csv: id");
  std::filesystem::remove_all(folder / "run");
  arguments.insert(arguments.end(), {"--ignore-columns", "id", "--separator", ";"});
  const CommandResult fewer = expect_success(engine(arguments));
  EXPECT_CONTAINS(fewer.out, "left out: id (by option)");
  EXPECT_LACKS(fewer.err, "warning");
  const CommandResult large = expect_success(call(
      "train --model mlp --dataset synthetic --limit 64 --batch-size 100 --epochs 1 --threads 1 "
      "--save-dir",
      folder / "large"));
  EXPECT_VALUES(large.err, "batch 100 samples 64");
  for (const auto& entry : std::filesystem::directory_iterator(folder / "run")) {
    if (entry.path().extension() != ".ckpt") continue;
    expect_success(call("eval", entry.path().string(), "--threads 1"));
    return;
  }
  FAIL() << "no checkpoint";
}

TEST(SamplerCheck, SaysWhatItHasProved) {
  const auto train = [](const std::vector<std::string>& more) {
    const CommandResult result = expect_success(call(
        "train --model mlp --dataset synthetic --synthetic-size 1001 --spawn 2 --batch-size 100 "
        "--epochs 1 --threads 1 --check-sampler",
        more));
    return result.out;
  };
  const std::string each = "Sampler: 1,001 ", epochs = " 2 epochs 1 to 2";
  for (const auto& [rule, line] : std::vector<std::pair<std::string, std::string>>{
           {"join", "exactly one rank" + epochs},
           {"drop", "one rank at most" + epochs + " 1 sample left out"},
           {"pad", "one rank at least" + epochs + " 1 sample used twice"}}) {
    const std::string out = train({"--uneven", rule});
    EXPECT_VALUES(out, each + line);
  }
}

TEST(RateScale, IsShownAsItWasComputed) {
  for (const auto& [rule, text] : std::vector<std::pair<std::string, std::string>>{
           {"none", " lr 0.1 constant"},
           {"linear", " lr 0.2 (0.1 x 2 ranks) constant"},
           {"sqrt", " lr 0.141421 (0.1 x sqrt(2 ranks)) constant"}}) {
    const CommandResult result = expect_success(call(
        "train --model mlp --dataset synthetic --synthetic-size 100 --spawn 2 --threads 1 --steps "
        "1 --lr 0.1 --lr-scale",
        rule));
    EXPECT_CONTAINS(result.out, text);
  }
}

TEST(SpawnAlone, StartsARankForEachProcessorAndSaysWhy) {
  const std::vector<std::string> arguments = argv(
      "train --spawn --model mlp --dataset synthetic --synthetic-size 64 --steps 1 --threads 1");
  const CommandResult cores = expect_success(engine(arguments, {{"CUDA_VISIBLE_DEVICES", ""}}));
  EXPECT_VALUES(cores.err, "core no GPU");
  std::vector<std::string> on_cpu = arguments;
  on_cpu.insert(on_cpu.end(), {"--device", "cpu", "--dry-run"});
  const CommandResult kept = engine(on_cpu, {{"CUDA_VISIBLE_DEVICES", "0,1,2"}});
  EXPECT_VALUES(kept.err, "core (--device cpu)");
}

TEST(FileShards, AreToldByEveryRankAndADryRunAndAreTheTrainingPart) {
  const test_support::TemporaryDirectory folder;
  std::string rows;
  for (int i = 0; i < 20; ++i) rows += std::to_string(i) + "," + (i % 2 == 0 ? "a" : "b") + "\n";
  test_support::write_text(folder / "rows.csv", rows);
  for (const bool trains : {true, false}) {
    const CommandResult result =
        expect_success(call("train --model mlp --dataset csv --data-dir", folder.path().string(),
                            "--test-share 0 --shard file --spawn 3 --batch-size 6 --threads 1",
                            trains ? "--epochs=1" : "--dry-run"));
    program::expect_words(result.out, {"id 0 3 0 6", "id 1 3 6 13", "id 2 3 13 20"});
  }
}

// The learning rate leaves the weights as they are: an epoch's sum of losses tells which samples it
// has used.
TEST(FileShards, AreDividedAmongOtherRanksInTheMiddleOfAnEpoch) {
  const test_support::TemporaryDirectory folder;
  constexpr int kSize = 37, kBatch = 6;
  const auto run = [&](const char* name, const char* ranks, const char* steps,
                       const std::vector<std::string>& more) {
    return call(
        "train --model mlp --dataset synthetic --synthetic-shape 6x6x1 --threads 1 --dtype f64 "
        "--lr 1e-15 --spawn",
        ranks, "--steps", steps, "--eval-every 0 --log-every 1 --save-dir", folder / name,
        "--synthetic-size", std::to_string(kSize), "--batch-size", std::to_string(kBatch), more);
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
  expect_success(run("whole", "1", "7", {}));
  const double once = sum_of_losses("whole");
  for (const char* name : {"first", "again"}) {
    const std::vector<std::string> file{"--shard", "file"},
        resumed{"--shard", "file", "--resume", "auto"};
    expect_success(run(name, "2", "3", file));
    const CommandResult three = expect_success(run(name, "3", "5", resumed));
    EXPECT_VALUES(three.out + three.err, "--shard file: 19 37 samples epoch 1 2 ranks; 3 ranks");
    expect_success(run(name, "3", "6", resumed));
    expect_success(run(name, "2", "7", resumed));
    EXPECT_NEAR(sum_of_losses(name), once, 1e-9 * once);
  }
  expect_success(call("verify --only all", folder / "first", folder / "again"));
}

TEST(Stage, OneRankOfAHostCopiesAndAllReadTheCopy) {
  const test_support::TemporaryDirectory folder;
  std::filesystem::create_directories(folder / "far");
  std::string rows;
  for (int i = 0; i < 40; ++i) rows += std::to_string(i) + "," + (i % 2 == 0 ? "a" : "b") + "\n";
  test_support::write_text(folder / "far/rows.csv", rows);
  std::vector<std::string> arguments =
      argv("train --model mlp --dataset csv --data-dir", folder / "far",
           "--spawn 3 --batch-size 6 --threads 1 --dtype f64");
  const auto final_loss = [](const std::string& out) { return out.substr(out.rfind("loss "), 12); };
  const CommandResult plain = expect_success(engine(arguments));
  arguments.insert(arguments.end(), {"--stage", folder / "near"});
  for (int run = 0; run < 2; ++run) {
    const CommandResult staged = expect_success(engine(arguments));
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
  EXPECT_CONTAINS(none.err, "cannot stage " + (folder / "far"));
}

// `eval` knows nothing of augmentation: what it finds must be what the training's own evaluation
// found.
TEST(Augmentation, IsNeverInEvaluation) {
  const test_support::TemporaryDirectory folder;
  std::vector<std::string> accuracies;
  for (const char* ranks : {"1", "2"}) {
    const std::string place = folder / ranks;
    const CommandResult trained = expect_success(call(
        "train --model mlp --dataset synthetic --synthetic-shape 8x8x3 --synthetic-size 60 "
        "--batch-size 12 --epochs 2 --augment crop,flip,cutout --cutout-size 4 --threads 1 --spawn",
        ranks, "--save-dir", place, "--dtype f64"));
    const std::string latest = test_support::read_text(place + "/latest");
    const CommandResult evaluated = expect_success(
        call("eval", place + "/" + latest.substr(0, latest.find('\n')), "--threads 1"));
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
    const CommandResult result = call("train --model mlp --dataset synthetic", more);
    EXPECT_EQ(result.exit_code, 78) << result.out;
    return result.err;
  };
  EXPECT_CONTAINS(said({"--augment", "crop,flop"}), "crop,flop");
  EXPECT_CONTAINS(said({"--augment", "crop,crop"}), "at most once");
  EXPECT_CONTAINS(said({"--augment", "flip", "--cutout-size", "8"}),
                  "--cutout-size requires --augment cutout");
  EXPECT_CONTAINS(said({"--crop-padding", "2"}), "--crop-padding requires --augment crop");
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
      const CommandResult result = expect_success(train(
          argv("--augment resized-crop,flip --spawn", ranks, "--workers", workers, "--dtype f64")));
      EXPECT_EQ(last_accuracy(result.out), 100) << result.out;
      results.insert(result.out.substr(result.out.rfind("loss "), 12));
    }
  EXPECT_EQ(results.size(), 1u) << *results.begin() << *results.rbegin();
}

TEST_F(ImageFolders, EvalReadsThePartThatIsNamed) {
  for (const std::string name : {"blue", "red"}) {
    std::filesystem::create_directories(folder_ / ("test/" + name));
    test_support::write_text(folder_ / ("test/" + name + "/z.png"),
                             test_support::plain_png(20, 20, name == "red" ? 200 : 10, 50, 90));
  }
  const test_support::TemporaryDirectory runs;
  const CommandResult trained = expect_success(train({"--save-dir", runs / "run"}));
  const std::string notice = "found val and test";
  EXPECT_CONTAINS(trained.err, notice);
  EXPECT_CONTAINS(trained.out, "/24)");
  const auto evaluated = [&](const std::vector<std::string>& more) {
    return expect_success(engine(argv("eval", runs / "run", "--threads 1", more)));
  };
  const CommandResult own = evaluated({});
  EXPECT_CONTAINS(own.out, " on images (val): ");
  EXPECT_CONTAINS(own.out, "/24)");
  EXPECT_CONTAINS(own.err, notice);
  const CommandResult test = evaluated({"--split", "test"});
  EXPECT_CONTAINS(test.out, " on images (test): ");
  EXPECT_CONTAINS(test.out, "/2)");
  EXPECT_EQ(test.err, "");
  EXPECT_CONTAINS(evaluated({"--split", "val"}).out, "/24)");
  EXPECT_CONTAINS(evaluated({"--split", "train"}).out, "/24)");
}

// The digest of images states their sizes in bytes, so a comment in a file would be another sample.
TEST_F(ImageFolders, OtherTestSamplesAreToldAndNotComparedWithEarlierOnes) {
  const test_support::TemporaryDirectory runs;
  const std::string run = runs / "run";
  expect_success(train({"--save-dir", run}));
  const CommandResult same = expect_success(call("eval", run, "--threads 1"));
  EXPECT_EQ(same.err, "");
  for (const auto& image : std::filesystem::directory_iterator(folder_ / "val/blue"))
    std::filesystem::copy(image.path(), folder_ / ("val/red/b" + image.path().filename().string()));
  EXPECT_VALUES(expect_success(call("eval", run, "--threads 1")).err,
                folder_.path().string() + " differ " + run + "/step-");
  const CommandResult resumed = expect_success(call("train --resume", run, "--epochs 4"));
  EXPECT_CONTAINS(resumed.err, "changed: test data (24 samples -> 36 samples), epochs 3 -> 4");
  EXPECT_VALUES(resumed.err, "best reset");
  EXPECT_CONTAINS(resumed.out, "Best so far: accuracy 66.67 % at step 16");
  EXPECT_LACKS(expect_success(call("train --resume", run, "--epochs 5")).err, "test");
}

TEST_F(ImageFolders, PredictNamesTheCheckpointOfARun) {
  const test_support::TemporaryDirectory runs;
  const std::string run = runs / "run", image = folder_ / "val/blue/a.png";
  expect_success(train({"--save-dir", run}));
  std::string best = test_support::read_text(run + "/best");
  best.pop_back();
  EXPECT_EQ(expect_success(call("predict", run, image)).err,
            "engine: " + run + ": its best checkpoint, " + best + "\n");
  EXPECT_EQ(expect_success(call("predict", run + "/" + best, image)).err, "");
}

TEST_F(ImageFolders, ABrokenImageEndsWith65AndItsName) {
  test_support::write_text(folder_ / "train/red/c.png", "GIF89a");
  const CommandResult result = train({});
  EXPECT_EQ(result.exit_code, 65);
  EXPECT_VALUES(result.err,
                "engine: error: " + (folder_ / "train/red/c.png") + ": PNG JPEG 47 49 46 38 GIF");
}

#endif

TEST(DataErrors, EndWith65AndOneLine) {
  const test_support::TemporaryDirectory folder;
  test_support::write_text(folder / "bad.csv", "1,2,a\n3,b\n");
  const CommandResult result =
      call("train --model mlp --dataset csv --data-dir", folder.path().string());
  EXPECT_EQ(result.exit_code, 65);
  EXPECT_VALUES(result.err, (folder / "bad.csv") + " row 2 line 2 2 fields 3 row 1");
}

// Mapped memory would end the ranks with SIGBUS.
TEST(TokenFiles, ThatBecomeShorterEndTheRunWithOneLine) {
  const test_support::TemporaryDirectory folder;
  for (const char* name : {"train.bin", "val.bin"})
    test_support::write_text(folder / name, std::string(400'000, '\1'));
  test_support::Running run(argv(
      test_support::engine_binary(), "train --model gpt-nano --dataset tokens --data-dir",
      folder.path().string(), "--token-bits 16 --epochs 1000 --log-every 1 --spawn 2 --threads 1"));
  ASSERT_TRUE(run.writes_out("Step [2/")) << run.err();
  std::filesystem::resize_file(folder / "train.bin", 1000);
  EXPECT_EQ(run.wait(), 65) << run.err();
  EXPECT_VALUES(run.err(), "train.bin: shorter");
}

}  // namespace
