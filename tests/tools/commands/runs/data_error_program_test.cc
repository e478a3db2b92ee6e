// A sample that cannot be read ends a run, whose completed steps are saved: after the sample is
// fixed, the run continues with the bits of one that never failed.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "io/checkpoint/checkpoint_directory.h"
#include "tests/io/data/images/png_bytes.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::engine;
using test_support::expect_success;
using test_support::TemporaryDirectory;
using Words = std::vector<std::string>;
namespace fs = std::filesystem;

#ifdef HAS_PNG
// 12 training images, and 70 test images: two chunks of an evaluation, the second on rank 1 of two.
class DataError : public testing::Test {
 protected:
  DataError() {
    for (int i = 0; i < 35; ++i)
      for (const std::string name : {"blue", "red"}) {
        if (i < 6) write("train", name, i);
        write("val", name, i);
      }
  }
  static std::string file(const std::string& part, const std::string& name, int i) {
    return part + "/" + name + "/" + std::to_string(100 + i) + ".png";
  }
  void write(const std::string& part, const std::string& name, int i) const {
    const auto red = static_cast<std::uint8_t>(name == "red" ? 200 + i : 10),
               blue = static_cast<std::uint8_t>(210 - red + i);
    fs::create_directories(folder_ / (part + "/" + name));
    test_support::write_text(folder_ / file(part, name, i),
                             test_support::plain_png(9, 9, red, 50, blue));
  }
  void damage(const std::string& part, const std::string& name, int i) const {
    test_support::write_text(folder_ / file(part, name, i), "junk");
  }
  CommandResult train(const std::string& run, const Words& more) const {
    return engine(test_support::overridden(
        argv("train --model resnet20-cifar --dataset images --data-dir", folder_.path().string(),
             "--image-size 8 --batch-size 4 --threads 1 --lr 0.01 --epochs 4 --eval-every 2e "
             "--save-every 2e --log-every 0 --keep-last 0 --save-dir",
             run),
        more));
  }
  // Expects that the run failed after this step, saved it, and names the file.
  void expect_saved(const CommandResult& failed, const std::string& run, std::int64_t step,
                    const std::string& cause, const std::string& damaged) const {
    EXPECT_EQ(failed.exit_code, 65) << failed.err;
    const std::string newest = io::find_newest_checkpoint(run, nullptr);
    ASSERT_NE(newest, "") << failed.err;
    EXPECT_EQ(io::load_checkpoint(newest).global_step, step);
    EXPECT_CONTAINS(failed.err, cause + ": saved " + newest + ", the last completed step");
    EXPECT_CONTAINS(failed.err, (folder_ / damaged) + ": neither PNG nor JPEG");
  }
  void expect_equal(const std::string& run, const std::string& whole) const {
    const std::string end = "/step-00000012.ckpt";
    expect_success(call("verify", run + end, whole + end));
  }

  const TemporaryDirectory folder_, runs_;
};

class EvaluationError : public DataError,
                        public testing::WithParamInterface<std::tuple<const char*, int>> {};

// The damaged image is in the first chunk, which rank 0 computes, or in the second.
TEST_P(EvaluationError, LosesNoStep) {
  const auto& [ranks, number] = GetParam();
  const std::string name = number < 10 ? "blue" : "red";
  damage("val", name, number);
  const std::string run = runs_ / "run", whole = runs_ / "whole";
  const CommandResult failed = train(run, {"--spawn", ranks});
  expect_saved(failed, run, 6, "the evaluation failed", file("val", name, number));
  const CommandResult again = engine({"train", "--resume", run});
  EXPECT_EQ(again.exit_code, 65) << "the evaluation was left out: " << again.out;
  write("val", name, number);
  const CommandResult resumed = expect_success(engine({"train", "--resume", run}));
  EXPECT_CONTAINS(resumed.out, "Test after step 6: ");
  expect_success(train(whole, {"--spawn", ranks}));
  expect_equal(run, whole);
}

INSTANTIATE_TEST_SUITE_P(Ranks, EvaluationError,
                         testing::Values(std::tuple("1", 34), std::tuple("2", 2),
                                         std::tuple("2", 34)));

TEST_F(DataError, OfTheWeightsAverageLosesNoStep) {
  const std::string run = runs_ / "run", whole = runs_ / "whole";
  const Words options{"--average-last", "2", "--save-async"};
  damage("val", "red", 3);
  expect_saved(train(run, options), run, 6, "the evaluation failed", file("val", "red", 3));
  write("val", "red", 3);
  expect_success(engine({"train", "--resume", run}));
  expect_success(train(whole, options));
  expect_equal(run, whole);
}

// The order of the seed has the image in the third step.
TEST_F(DataError, OfATrainingSampleLosesNoStep) {
  for (const std::string ranks : {"1", "2"}) {
    const std::string run = runs_ / ("run" + ranks), whole = runs_ / ("whole" + ranks);
    const Words options{"--spawn", ranks, "--eval-every", "0"};
    damage("train", "red", 3);
    expect_saved(train(run, options), run, 2, ranks == "1" ? "the next step failed" : "",
                 file("train", "red", 3));
    write("train", "red", 3);
    expect_success(engine({"train", "--resume", run, "--allow-change", "data"}));
    expect_success(train(whole, options));
    expect_equal(run, whole);
  }
}
#endif

}  // namespace
