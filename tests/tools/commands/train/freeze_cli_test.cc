// --freeze and --lr-group of the real program, and --allow-mismatch of --init-from.
#include <gtest/gtest.h>

#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/program.h"

namespace {

using program::expect_error;
using program::expect_words;
using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::engine;
using test_support::expect_success;
using test_support::TemporaryDirectory;

CommandResult train_convnet(const std::vector<std::string>& more) {
  return call(
      "train --model convnet --dataset synthetic --batch-size 12 --threads 1 --eval-every 0 "
      "--log-every 0 --synthetic-size 60 --synthetic-shape 8x8x1",
      more);
}

// Names of the tensors that differ, one a line.
std::string differing(const std::string& a, const std::string& b) {
  const CommandResult result = call("verify", a, b, "--only params");
  EXPECT_NE(result.exit_code, 2) << result.err;
  return result.out;
}

TEST(Freeze, IsToldAndKeptByCheckpointsAndResumedRuns) {
  const TemporaryDirectory folder;
  const std::vector<std::string> freeze{"--freeze", "layer1.*", "--spawn", "2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), freeze.begin(), freeze.end());
    return train_convnet(more);
  };
  const CommandResult whole = expect_success(with(argv("--steps 8 --save-dir", folder / "whole")));
  expect_words(whole.out, {"Frozen: 4 of 10 parameters (448 of ", "running statistics 1"});
  expect_success(with(argv("--steps 4 --save-dir", folder / "run")));
  const std::string middle = folder / "run/step-00000004.ckpt",
                    end = folder / "whole/step-00000008.ckpt";
  EXPECT_EQ(differing(middle, end),
            "layer2.0.weight\nlayer2.0.bias\nlayer2.1.weight\nlayer2.1.bias\nfc.weight\nfc.bias\n");
  const CommandResult resumed = expect_success(call("train --resume", folder / "run", "--steps 8"));
  expect_words(resumed.out, {"Frozen: 4 of 10 parameters"});
  expect_success(engine({"verify", end, folder / "run/step-00000008.ckpt"}));

  expect_error(call("train --resume", folder / "run", "--steps 10 --freeze fc.*"), 78,
               (folder / "run") + " --freeze layer1.*, fc.*");
  expect_success(
      call("train --resume", folder / "run", "--steps 10 --freeze fc.* --allow-change freeze"));
  const std::string names = differing(folder / "run/step-00000010.ckpt", end);
  EXPECT_CONTAINS(names, "layer1.0.weight\n");
  EXPECT_LACKS(names, "fc.weight\n");
}

TEST(Freeze, HoldsInAnElasticJob) {
  const TemporaryDirectory folder;
  for (const std::string name : {"one", "elastic"}) {
    std::vector<std::string> more =
        argv("--steps 6 --save-dir", folder / name,
             "--freeze layer1.* --lr-group fc.*=3x --reduction-order canonical");
    if (name == "elastic") more.insert(more.end(), {"--spawn", "2", "--elastic"});
    expect_success(train_convnet(more));
  }
  EXPECT_EQ(differing(folder / "one/step-00000006.ckpt", folder / "elastic/step-00000006.ckpt"),
            "");
}

TEST(LrGroup, AChangeIsToldOnResumption) {
  const TemporaryDirectory folder;
  expect_success(train_convnet({"--steps", "2", "--save-dir", folder / "run"}));
  const CommandResult resumed =
      expect_success(call("train --resume", folder / "run", "--steps 4 --lr-group fc.*=10x"));
  expect_words(resumed.err, {"lr-group unset -> fc.*=10x (--lr-group)"});
}

TEST(AllowMismatch, LeavesOutWhatDoesNotFitAndSaysWhat) {
  const TemporaryDirectory folder;
  expect_success(train_convnet({"--steps", "2", "--save-dir", folder / "run"}));
  expect_success(call("export", folder / "run", "-o", folder / "m.safetensors"));
  const std::vector<std::string> of_five =
      argv("--steps 1 --synthetic-classes 5 --lr 1e-30 --save-dir", folder / "five",
           "--overwrite --init-from", folder / "m.safetensors");
  expect_error(train_convnet(of_five), 65, "'fc.weight' [10, 128] [5");
  std::vector<std::string> allowed = of_five;
  allowed.insert(allowed.end(), {"--allow-mismatch", "fc.*"});
  const CommandResult result = expect_success(train_convnet(allowed));
  expect_words(result.out, {"but for fc.weight ([10, 128] there, the model has [5, 128]), fc.bias "
                            "([10] there, the model has [5])"});
  // What fits was taken: it moves by next to nothing from there.
  const std::string names =
      call("verify", folder / "m.safetensors", folder / "five", "--only params --atol 1e-20").out;
  EXPECT_EQ(names, "fc.weight\nfc.bias\n");
}

TEST(AllowMismatch, AlsoOfArraysThatAreMissingOrLeftOver) {
  const TemporaryDirectory folder;
  expect_success(train_convnet({"--steps", "1", "--save-dir", folder / "run"}));
  const std::vector<std::string> mlp = argv(
      "train --model mlp --dataset synthetic --synthetic-shape 8x8x1 --synthetic-size 60 --steps 1 "
      "--threads 1 --init-from",
      folder / "run");
  std::vector<std::string> all = mlp, some = mlp;
  all.insert(all.end(), {"--allow-mismatch", "*"});
  expect_error(engine(all), 65, "is of this model");
  some.insert(some.end(), {"--allow-mismatch", "layers.*"});
  expect_error(engine(some), 65, "' model");
  expect_error(engine(mlp), 65, "no 'layers.0.weight'");
  expect_error(train_convnet({"--allow-mismatch", "fc.*"}), 78, "requires --init-from");
}

}  // namespace
