// --freeze and --lr-group of the real program, and --allow-mismatch of --init-from.
#include <gtest/gtest.h>

#include "tests/support/test_support.h"
#include "tests/tools/commands/program.h"

namespace {

using program::expect_error;
using program::expect_words;
using test_support::CommandResult;
using test_support::engine;
using test_support::TemporaryDirectory;

CommandResult train_convnet(const std::vector<std::string>& more) {
  std::vector<std::string> arguments{
      "train", "--model",          "convnet", "--dataset",         "synthetic", "--batch-size",
      "12",    "--threads",        "1",       "--eval-every",      "0",         "--log-every",
      "0",     "--synthetic-size", "60",      "--synthetic-shape", "8x8x1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return engine(arguments);
}

// Names of the tensors that differ, one a line.
std::string differing(const std::string& a, const std::string& b) {
  const CommandResult result = engine({"verify", a, b, "--only", "params"});
  EXPECT_NE(result.exit_code, 2) << result.err;
  return result.out;
}

TEST(Freeze, IsToldAndKeptBySnapshotsAndResumedRuns) {
  const TemporaryDirectory folder;
  const std::vector<std::string> freeze{"--freeze", "layer1.*", "--spawn", "2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), freeze.begin(), freeze.end());
    return train_convnet(more);
  };
  const CommandResult whole = with({"--steps", "8", "--save-dir", folder / "whole"});
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  expect_words(whole.out, {"Frozen: 4 of 10 parameters (448 of ",
                           "the running statistics of 1 layer stay as they are"});
  ASSERT_EQ(with({"--steps", "4", "--save-dir", folder / "run"}).exit_code, 0);
  const std::string middle = folder / "run/step-00000004.ckpt",
                    end = folder / "whole/step-00000008.ckpt";
  EXPECT_EQ(differing(middle, end),
            "layer2.0.weight\nlayer2.0.bias\nlayer2.1.weight\nlayer2.1.bias\nfc.weight\nfc.bias\n");
  const CommandResult resumed = engine({"train", "--resume", folder / "run", "--steps", "8"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  expect_words(resumed.out, {"Frozen: 4 of 10 parameters"});
  EXPECT_EQ(engine({"verify", end, folder / "run/step-00000008.ckpt"}).exit_code, 0);

  expect_error(engine({"train", "--resume", folder / "run", "--steps", "10", "--freeze", "fc.*"}),
               78, "was trained with --freeze layer1.*, asked for is fc.*");
  const CommandResult changed = engine({"train", "--resume", folder / "run", "--steps", "10",
                                        "--freeze", "fc.*", "--allow-change", "freeze"});
  ASSERT_EQ(changed.exit_code, 0) << changed.err;
  const std::string names = differing(folder / "run/step-00000010.ckpt", end);
  EXPECT_NE(names.find("layer1.0.weight\n"), std::string::npos) << names;
  EXPECT_EQ(names.find("fc.weight\n"), std::string::npos) << names;
}

TEST(Freeze, HoldsInAnElasticJob) {
  const TemporaryDirectory folder;
  for (const std::string name : {"one", "elastic"}) {
    std::vector<std::string> more{"--steps",           "6",        "--save-dir", folder / name,
                                  "--freeze",          "layer1.*", "--lr-group", "fc.*=3x",
                                  "--reduction-order", "canonical"};
    if (name == "elastic") more.insert(more.end(), {"--spawn", "2", "--elastic"});
    const CommandResult result = train_convnet(more);
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  EXPECT_EQ(differing(folder / "one/step-00000006.ckpt", folder / "elastic/step-00000006.ckpt"),
            "");
}

TEST(LrGroup, AChangeIsToldOnResumption) {
  const TemporaryDirectory folder;
  ASSERT_EQ(train_convnet({"--steps", "2", "--save-dir", folder / "run"}).exit_code, 0);
  const CommandResult resumed =
      engine({"train", "--resume", folder / "run", "--steps", "4", "--lr-group", "fc.*=10x"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  expect_words(resumed.err, {"lr-group unset -> fc.*=10x (--lr-group)"});
}

TEST(AllowMismatch, LeavesOutWhatDoesNotFitAndSaysWhat) {
  const TemporaryDirectory folder;
  ASSERT_EQ(train_convnet({"--steps", "2", "--save-dir", folder / "run"}).exit_code, 0);
  ASSERT_EQ(engine({"export", folder / "run", "-o", folder / "m.safetensors"}).exit_code, 0);
  const std::vector<std::string> of_five{"--steps",
                                         "1",
                                         "--synthetic-classes",
                                         "5",
                                         "--lr",
                                         "1e-30",
                                         "--save-dir",
                                         folder / "five",
                                         "--overwrite",
                                         "--init-from",
                                         folder / "m.safetensors"};
  expect_error(train_convnet(of_five), 65, "'fc.weight' has shape [10, 128], the model wants [5");
  std::vector<std::string> allowed = of_five;
  allowed.insert(allowed.end(), {"--allow-mismatch", "fc.*"});
  const CommandResult result = train_convnet(allowed);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_words(result.out, {"but for fc.weight ([10, 128] there, the model has [5, 128]), fc.bias "
                            "([10] there, the model has [5])"});
  // What fits was taken: it moves by next to nothing from there.
  const std::string names = engine({"verify", folder / "m.safetensors", folder / "five", "--only",
                                    "params", "--atol", "1e-20"})
                                .out;
  EXPECT_EQ(names, "fc.weight\nfc.bias\n");
}

TEST(AllowMismatch, AlsoOfArraysThatAreMissingOrLeftOver) {
  const TemporaryDirectory folder;
  ASSERT_EQ(train_convnet({"--steps", "1", "--save-dir", folder / "run"}).exit_code, 0);
  const std::vector<std::string> mlp{
      "train", "--model",          "mlp",         "--dataset", "synthetic", "--synthetic-shape",
      "8x8x1", "--synthetic-size", "60",          "--steps",   "1",         "--threads",
      "1",     "--init-from",      folder / "run"};
  std::vector<std::string> all = mlp, some = mlp;
  all.insert(all.end(), {"--allow-mismatch", "*"});
  expect_error(engine(all), 65, "is of this model");
  some.insert(some.end(), {"--allow-mismatch", "layers.*"});
  expect_error(engine(some), 65, "' is not of this model");
  expect_error(engine(mlp), 65, "no 'layers.0.weight'");
  expect_error(train_convnet({"--allow-mismatch", "fc.*"}), 78, "requires --init-from");
}

}  // namespace
