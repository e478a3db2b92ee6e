// A U-Net of PyTorch with a class for each pixel, as a user trains it: the losses of each step and
// the scores are PyTorch's, for any number of ranks. Skipped where PEER_PYTHON has no torch.
#include <gtest/gtest.h>

#include <cstring>

#include "io/base/text/text_parts.h"
#include "io/interchange/array_files.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/tools/commands/onnx/onnx_fixture.h"
#include "tests/tools/commands/program.h"
#include "tools/report/output/json_file.h"

namespace {

using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::expect_success;

class MapTraining : public testing::Test {
 protected:
  void SetUp() override {
    const std::string missing = onnx_fixture::missing_after_script("torch_maps.py", folder_ / ".");
    if (!missing.empty()) GTEST_SKIP() << missing;
    expected_ = io::load_arrays(folder_ / "expected.npz");
  }

  std::vector<double> expected(const std::string& name) const {
    for (const io::NamedArray& array : expected_) {
      if (array.name != name) continue;
      std::vector<double> values(array.data.size() / sizeof(double));
      std::memcpy(values.data(), array.data.data(), array.data.size());
      return values;
    }
    ADD_FAILURE() << "no array " << name;
    return {};
  }

  CommandResult train(const std::string& run, const std::vector<std::string>& more) const {
    return expect_success(test_support::engine(test_support::overridden(
        argv("train --dataset arrays --no-shuffle --epochs 12 --lr 0.5 --momentum 0 --batch-size 8 "
             "--log-every 1 "
             "--dtype f64 --ignore-id 255 --data-dir",
             folder_ / ".", "--model", folder_ / "unet.onnx", "--save-dir", folder_ / run),
        more)));
  }

  std::vector<double> losses(const std::string& run) const {
    std::vector<double> found;
    for (const std::string& line :
         base::split_text(test_support::read_text(folder_ / run + "/metrics.jsonl"), '\n')) {
      if (line.empty()) continue;
      const tools::Json event = tools::Json::parse(line);
      if (event["event"] == "step") found.push_back(event["loss"].get<double>());
    }
    return found;
  }

  void expect_losses(const std::string& run, const std::string& name, double most = 1e-10) const {
    const std::vector<double> found = losses(run), torch = expected(name);
    ASSERT_EQ(found.size(), torch.size());
    for (std::size_t step = 0; step < torch.size(); ++step)
      EXPECT_NEAR(found[step], torch[step], most) << run << " step " << step;
  }

  const test_support::TemporaryDirectory folder_;
  std::vector<io::NamedArray> expected_;
};

TEST_F(MapTraining, HasTheLossesOfPyTorch) {
  train("plain", {});
  expect_losses("plain", "plain");
  train("ranks", argv("--spawn 2 --grad-accum 2"));
  expect_losses("ranks", "plain");
  train("smoothed", argv("--spawn 2 --label-smoothing 0.1"));
  expect_losses("smoothed", "smoothed");
  train("weighted", argv("--spawn 2 --class-weights 0.3,1.1,2.7"));
  expect_losses("weighted", "weighted", 1e-12);
  train("weighted_alone", argv("--class-weights 0.3,1.1,2.7"));
  expect_losses("weighted_alone", "weighted", 1e-12);
}

TEST_F(MapTraining, HasTheScoresOfPyTorch) {
  train("plain", argv("--spawn 2"));
  const CommandResult evaluated =
      expect_success(call("eval", folder_ / "plain/step-00000036.ckpt", "--format json --spawn 2"));
  const tools::Json found = tools::Json::parse(evaluated.out);
  const std::vector<double> scores = expected("scores");
  EXPECT_NEAR(found["loss"].get<double>(), scores[0], 1e-10);
  EXPECT_EQ(found["accuracy"].get<double>(), scores[1]);
  double sum = 0;
  for (std::size_t c = 0; c < 3; ++c) {
    EXPECT_EQ(found["classes"][c]["iou"].get<double>(), scores[2 + c]) << c;
    sum += scores[2 + c];
  }
  EXPECT_NEAR(found["mean_iou"].get<double>(), sum / 3, 1e-15);
  EXPECT_CONTAINS(expect_success(call("eval", folder_ / "plain")).out, "mean IoU 0.");
}

TEST_F(MapTraining, HasTheSameBitsForAnyNumberOfRanks) {
  const auto with_ranks = [&](int ranks) {
    const std::string run = "ranks" + std::to_string(ranks);
    train(run, argv("--dtype f32 --reduction-order canonical --reduction-shards 8 --spawn",
                    std::to_string(ranks)));
    return losses(run);
  };
  const std::vector<double> one = with_ranks(1);
  for (const int ranks : {2, 4, 8}) {
    EXPECT_EQ(with_ranks(ranks), one) << ranks;
    expect_success(call("verify", folder_ / "ranks1/step-00000036.ckpt",
                        folder_ / ("ranks" + std::to_string(ranks) + "/step-00000036.ckpt")));
  }
}

}  // namespace
