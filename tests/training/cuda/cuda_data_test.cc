// Trainings whose samples lie on the CUDA device have the bits of those whose batches are sent.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "io/base/files/io_error.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/training/cuda/cuda_ranks.h"
#include "tests/training/session_runner.h"

namespace {

using cuda_ranks::kRanks;
using cuda_ranks::on_devices;
using session_runner::difference;
using session_runner::Options;
using session_runner::RankResult;
using session_runner::train;
using session_runner::with;

// 20 samples in shuffled steps of 7: the third one of an epoch has 6.
const Options kImages =
    "model=mlp synthetic-shape=5x4x3 synthetic-size=20 batch-size=7 epochs=2 lr=0.05 momentum=0.9";

class CudaData : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = cuda_ranks::missing(/*nccl=*/false); !missing.empty())
      GTEST_SKIP() << missing;
  }
  std::string table() const {
    std::string table = "a,b,k\n";
    for (int i = 0; i < 45; ++i)
      table += std::to_string(i * 37 % 41) + "," + std::to_string(i * i % 23) + "," +
               std::to_string(i * i % 3) + "\n";
    test_support::write_text(folder_ / "rows.csv", table);
    return "dataset=csv columns=a,b label-column=k batch-size=7 annotations=" +
           (folder_ / "rows.csv");
  }
  std::string text() const {
    std::string text;
    for (int i = 0; i < 30; ++i) text += "line " + std::to_string(i * i) + " of a text\n";
    test_support::write_text(folder_ / "input.txt", text);
    return "model=gpt-nano dataset=text context=8 batch-size=3 steps=3 optimizer=adamw lr=0.001 "
           "data-dir=" +
           folder_.path().string();
  }
  const test_support::TemporaryDirectory folder_;
};

void expect_sent_bits(int world, const Options& options) {
  const std::vector<RankResult> sent = train(world, with(options, "data-on-device=off")),
                                resident = train(world, with(options, "data-on-device=on"));
  ASSERT_FALSE(sent[0].losses.empty());
  EXPECT_EQ(sent[0].losses, resident[0].losses);
  for (std::size_t r = 0; r < sent.size(); ++r) {
    EXPECT_EQ(difference(sent[r].whole, resident[r].whole), "") << "rank " << r;
    EXPECT_EQ(sent[r].samples_on_device, "");
    EXPECT_CONTAINS(resident[r].samples_on_device, "batches are gathered there");
  }
}

TEST_F(CudaData, ImagesHaveTheSameBitsForAnyRanks) {
  for (const int world : {1, 2, kRanks}) {
    SCOPED_TRACE(world);
    expect_sent_bits(world, with(kImages, on_devices(world, /*nccl=*/false)));
  }
}

TEST_F(CudaData, ImagesHaveTheSameBitsBesideOtherOptions) {
  for (const char* more :
       {"augment=crop,flip,cutout crop-padding=1 cutout-size=2", "grad-accum=3 cuda-graph=off",
        "grad-accum=2 augment=flip amp=bf16", "pin-memory=false", "non-blocking=false workers=0",
        "reduction-order=canonical reduction-shards=4",
        "shuffle=false class-weights=1,2,1,1,1,1,1,1,1,3", "average-last=2 eval-every=2"}) {
    SCOPED_TRACE(more);
    expect_sent_bits(1, with(kImages, "device=cuda", more));
  }
  expect_sent_bits(
      2, with(kImages, "device=cuda reduction-order=canonical reduction-shards=4 augment=flip"));
}

TEST_F(CudaData, RowsOfTablesHaveTheSameBits) {
  expect_sent_bits(2, with(Options(table()), "device=cuda model=mlp epochs=1 lr=0.05"));
  expect_sent_bits(
      1, with(Options(table()), "device=cuda model=mlp epochs=1 lr=0.05 task=regression amp=bf16"));
}

TEST_F(CudaData, WindowsOfTextHaveTheSameBits) {
  expect_sent_bits(1, with(Options(text()), "device=cuda"));
  expect_sent_bits(2, with(Options(text()), "device=cuda dropout=0.1 grad-accum=2"));
}

TEST_F(CudaData, AResumedRunContinuesBitByBitWhereverTheSamplesAre) {
  const Options whole = with(kImages, "device=cuda augment=flip");
  const std::vector<RankResult> expected = train(1, with(whole, "data-on-device=off"));
  const Options saved = with(whole, "save-dir=" + (folder_ / "run"));
  train(1, with(saved, "data-on-device=on epochs= steps=2"));
  const std::vector<RankResult> found =
      train(1, with(saved, "resume=auto data-on-device=off epochs= steps=4"));
  const std::vector<RankResult> end =
      train(1, with(saved, "resume=auto data-on-device=auto epochs= steps=6"));
  EXPECT_CONTAINS(end[0].samples_on_device, "gathered");
  EXPECT_EQ(difference(expected[0].whole, end[0].whole), "");
}

TEST_F(CudaData, AutoLeavesTooManySamplesInHostMemory) {
  const Options options = with(kImages, "device=cuda synthetic-size=2000 steps=1 epochs=");
  EXPECT_CONTAINS(train(1, options)[0].samples_on_device, " KiB, batches are gathered there");
  // There is room for the plan alone.
  const std::vector<RankResult> limited =
      train(1, with(options, "memory=75M synthetic-shape=60x60x3 model=mlp synthetic-size=1500"));
  EXPECT_VALUES(limited[0].samples_on_device, "none: MiB beside 75 MiB");
}

TEST_F(CudaData, SamplesThatCannotBeThereAreRejectedOnRequest) {
  const auto error_of = [&](const Options& options) {
    return test_support::error_or<io::ConfigError>([&] { train(1, options); }, "");
  };
  EXPECT_VALUES(error_of(with(kImages, "device=cpu data-on-device=on")),
                "--data-on-device on --device cuda");
}

}  // namespace
