// Gradients that CUDA devices sum as codes: over NCCL, or with codes that pass through host memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/training/changing_ranks.h"
#include "tests/training/cuda/cuda_ranks.h"
#include "tests/training/session_runner.h"

namespace {

using cuda_ranks::expect_equal_parameters;
using cuda_ranks::kMaxRanks;
using cuda_ranks::kRanks;
using session_runner::distance;
using session_runner::Options;
using session_runner::RankResult;
using session_runner::same_bits;
using session_runner::train;
using session_runner::with;
using test_support::TemporaryDirectory;

// Thirteen samples: the ranks' shares are unequal. Several buckets, which are no whole blocks.
const Options kOfBuckets =
    "model=convnet synthetic-shape=4x4x1 batch-size=13 steps=7 lr=0.05 momentum=0.9 "
    "weight-decay=0.001 bucket-cap-mb=0.03";
const Options kInHostMemory = cuda_ranks::on_devices(kRanks, /*nccl=*/false);
const Options kCodes[] = {
    "compress=int8", "compress=int4",
    "compress=sparse sparse-ratio=0.1 sparse-warmup=3 sparse-momentum=0.9 momentum=0",
    "compress=topk topk-ratio=0.05"};
const Options kPowerSgd = "compress=powersgd powersgd-rank=2";

Options by_nccl(int world) { return cuda_ranks::on_devices(world, /*nccl=*/true); }

class CudaCodes : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = cuda_ranks::missing(/*nccl=*/true, kMaxRanks); !missing.empty())
      GTEST_SKIP() << missing;
  }
};

std::vector<std::vector<std::byte>> errors_of(const io::Checkpoint& state) {
  std::vector<std::vector<std::byte>> all;
  for (const io::NamedArray& array : state.arrays)
    if (array.section == io::Section::kAveraging) all.push_back(array.data);
  return all;
}

// In float64 both kinds of devices have the same gradients but for the last bits, so that the codes
// are the same. With four ranks, sums are made in shares.
TEST_F(CudaCodes, HaveTheValuesOfTheCpu) {
  for (const Options& codes : kCodes)
    for (const int world : {2, kRanks, kMaxRanks}) {
      SCOPED_TRACE(codes.at("compress") + " on " + std::to_string(world));
      const Options options = with(kOfBuckets, "dtype=f64", codes);
      const auto cpu = train(world, with(options, "device=cpu")),
                 nccl = train(world, with(options, by_nccl(world))),
                 staged = train(world, with(options, kInHostMemory));
      expect_equal_parameters(nccl);
      for (std::size_t rank = 0; rank < nccl.size(); ++rank)
        EXPECT_EQ(session_runner::difference(staged[rank].whole, nccl[rank].whole), "") << rank;
      EXPECT_LT(distance(cpu[0], nccl[0]), 1e-10);
      EXPECT_EQ(cpu[0].averagings, nccl[0].averagings);
      EXPECT_EQ(cpu[0].bytes_sent, nccl[0].bytes_sent);
      EXPECT_EQ(cpu[0].bytes_sent, staged[0].bytes_sent);
    }
}

void expect_same_bits_beside_other_options(const Options& codes) {
  SCOPED_TRACE(codes.at("compress"));
  for (const Options& more : {Options("amp=bf16"), Options("sync-bn=true"),
                              Options("freeze=layer1.*"), Options("amp=O2 loss-scale=dynamic"),
                              Options("grad-accum=2"), Options("delay-allreduce=true"),
                              Options("shard-optimizer=true optimizer=adamw lr=0.001 momentum="),
                              Options("batch-size=2 synthetic-size=20")}) {
    SCOPED_TRACE(more.begin()->first + "=" + more.begin()->second);
    const Options options = with(kOfBuckets, codes, more);
    const auto nccl = train(kRanks, with(options, by_nccl(kRanks))),
               staged = train(kRanks, with(options, kInHostMemory));
    expect_equal_parameters(nccl);
    for (std::size_t rank = 0; rank < nccl.size(); ++rank)
      EXPECT_TRUE(same_bits(staged[rank], nccl[rank], io::Section::kParameter)) << rank;
  }
}

TEST_F(CudaCodes, HaveTheSameBitsBesideOtherOptions) {
  expect_same_bits_beside_other_options(kCodes[0]);
  expect_same_bits_beside_other_options(kCodes[3]);
}

// Graphs read the number of the round from device memory.
TEST_F(CudaCodes, CapturedStepsHaveTheBitsOfStraightSteps) {
  for (const Options& codes : kCodes)
    for (const char* more : {"grad-accum=1", "grad-accum=2"}) {
      SCOPED_TRACE(codes.at("compress") + " " + more);
      const Options options = with(kOfBuckets, codes, by_nccl(kMaxRanks), more);
      const auto captured = train(kMaxRanks, options),
                 straight = train(kMaxRanks, with(options, "cuda-graph=off"));
      EXPECT_EQ(captured[0].capture, "captured from step 3 on");
      for (std::size_t rank = 0; rank < captured.size(); ++rank)
        EXPECT_EQ(session_runner::difference(straight[rank].whole, captured[rank].whole), "");
    }
  for (const Options& codes : {kCodes[0], kCodes[3]})
    EXPECT_EQ(train(2, with(kOfBuckets, codes, kInHostMemory))[0].capture,
              "not captured: codes of gradients pass through host memory");
}

// Two ranks add in any order; more ranks round differently over NCCL.
void expect_values_of_all_reduced_codes(const Options& codes, const std::string& note) {
  SCOPED_TRACE(codes.at("compress"));
  for (const char* more : {"dtype=f64", "dtype=f64 grad-accum=2 shares=3:1", "sync-bn=true"}) {
    SCOPED_TRACE(more);
    const bool is_wide = std::string(more).starts_with("dtype");
    const Options options = with(kOfBuckets, codes, more);
    const auto cpu = train(2, with(options, "device=cpu")),
               nccl = train(2, with(options, by_nccl(2))),
               staged = train(2, with(options, kInHostMemory));
    expect_equal_parameters(nccl);
    EXPECT_EQ(nccl[0].capture, "captured from step 3 on");
    for (std::size_t rank = 0; is_wide && rank < nccl.size(); ++rank)
      EXPECT_EQ(session_runner::difference(staged[rank].whole, nccl[rank].whole), "") << rank;
    EXPECT_LT(distance(cpu[0], nccl[0]), is_wide ? 1e-10 : 1e-3);
    EXPECT_LT(distance(cpu[0], staged[0]), is_wide ? 1e-10 : 1e-3);
    EXPECT_EQ(cpu[0].bytes_sent, nccl[0].bytes_sent);
    EXPECT_EQ(cpu[0].bytes_sent, staged[0].bytes_sent);
  }
  const Options options = with(kOfBuckets, codes);
  const auto cpu = train(kMaxRanks, with(options, "device=cpu")),
             nccl = train(kMaxRanks, with(options, by_nccl(kMaxRanks))),
             straight = train(kMaxRanks, with(options, by_nccl(kMaxRanks), "cuda-graph=off"));
  expect_equal_parameters(nccl);
  EXPECT_LT(distance(cpu[0], nccl[0]), 1e-2);
  for (std::size_t rank = 0; rank < nccl.size(); ++rank)
    EXPECT_EQ(session_runner::difference(straight[rank].whole, nccl[rank].whole), "") << rank;
  EXPECT_CONTAINS(nccl[0].coverage, "steps (" + note + "), encoded on the device");
}

TEST_F(CudaCodes, OfBf16HaveTheValuesOfTheCpu) {
  expect_values_of_all_reduced_codes("compress=bf16", "bf16");
}
TEST_F(CudaCodes, OfPowerSgdHaveTheValuesOfTheCpu) {
  expect_values_of_all_reduced_codes(kPowerSgd, "PowerSGD rank 2");
}

// The first steps overflow: their gradients are skipped, and must not stay in the error.
void expect_finite_errors_after_overflows(const Options& codes) {
  SCOPED_TRACE(codes.at("compress"));
  for (const Options& devices : {by_nccl(2), kInHostMemory}) {
    const auto ranks =
        train(2, with(kOfBuckets, devices, codes, "amp=O2 loss-scale=16777216 steps=3"));
    for (const RankResult& rank : ranks)
      for (const std::vector<std::byte>& error : errors_of(rank.whole))
        for (std::size_t at = 0; at < error.size(); at += sizeof(float)) {
          float value = 0;
          std::memcpy(&value, error.data() + at, sizeof value);
          ASSERT_TRUE(std::isfinite(value)) << at;
        }
    const auto trained =
        train(2, with(kOfBuckets, devices, codes, "amp=O2 loss-scale=dynamic steps=12"));
    EXPECT_TRUE(std::isfinite(trained[0].losses.back()));
    EXPECT_LE(trained[0].reports.back().skipped_steps, 6);
  }
}

TEST_F(CudaCodes, OutliveStepsThatOverflow) {
  expect_finite_errors_after_overflows("compress=bf16");
  expect_finite_errors_after_overflows(kCodes[3]);
  expect_finite_errors_after_overflows(kPowerSgd);
}

// Of codes that are all-reduced.
TEST_F(CudaCodes, ThatAreSummedResumeOnTheOtherKindOfDevice) {
  for (const Options& codes : {Options("compress=bf16"), kPowerSgd}) {
    SCOPED_TRACE(codes.at("compress"));
    const Options base = with(kOfBuckets, "dtype=f64", codes), cpu = "device=cpu";
    const auto whole = train(2, with(base, by_nccl(2)));
    for (const auto& [first, second] :
         {std::pair{by_nccl(2), by_nccl(2)}, std::pair{by_nccl(2), cpu},
          std::pair{cpu, kInHostMemory}}) {
      const auto continued = cuda_ranks::train_in_two_runs(base, first, second);
      EXPECT_LT(distance(whole[0], continued[0]), 1e-10);
      EXPECT_EQ(continued[0].bytes_sent, whole[0].bytes_sent);
    }
  }
}

TEST_F(CudaCodes, OfBf16GoOnWhenRanksLeaveAndJoin) {
  for (const Options& devices : {by_nccl(kRanks), kInHostMemory}) {
    const Options options = with(kOfBuckets, "compress=bf16 steps=9", devices);
    changing_ranks::Job job(options, kRanks);
    job.join(kRanks);
    job.until_death(1, 5);
    const auto expected = train(kRanks, with(options, "steps=5"));
    EXPECT_TRUE(errors_of(job.kept_by(0).state.checkpoint.value()) == errors_of(expected[0].whole));
  }
}

TEST_F(CudaCodes, TheReportNamesThem) {
  for (const Options& devices : {by_nccl(2), kInHostMemory}) {
    EXPECT_CONTAINS(train(2, with(kOfBuckets, kCodes[0], devices))[0].coverage,
                    "steps (int8), encoded on the device");
    EXPECT_CONTAINS(train(2, with(kOfBuckets, kCodes[3], devices))[0].coverage,
                    "steps (top-k 0.05), encoded on the device");
  }
}

// A mark in the mirror of the gradients is there as long as nothing is copied to it.
TEST_F(CudaCodes, LeaveTheMirrorOfTheGradientsAlone) {
  for (const auto& [codes, devices] :
       {std::pair{kCodes[0], by_nccl(2)}, std::pair{kCodes[0], kInHostMemory},
        std::pair{kCodes[3], kInHostMemory}, std::pair{kPowerSgd, kInHostMemory}}) {
    std::vector<char> kept(2, 1);
    train(2, with(kOfBuckets, codes, devices), [&kept](int rank, engine::TrainState& state) {
      float& mirrored = state.model.parameters.gradients.span<float>()[0];
      constexpr float kMark = 12345;
      if (state.progress.global_step >= 3 && mirrored != kMark)
        kept[static_cast<std::size_t>(rank)] = 0;
      mirrored = kMark;
    });
    EXPECT_EQ(kept, (std::vector<char>{1, 1}));
  }
}

// The errors of all ranks are in the checkpoint.
TEST_F(CudaCodes, ResumeOnTheOtherKindOfDevice) {
  const Options cpu = "device=cpu";
  for (const Options& codes : kCodes) {
    SCOPED_TRACE(codes.at("compress"));
    const Options base = with(kOfBuckets, "dtype=f64", codes, "save-every=3s");
    const auto continued = [&](const Options& first, const Options& second) {
      return cuda_ranks::train_in_two_runs(base, first, second);
    };
    const TemporaryDirectory saved;
    const auto whole = train(2, with(base, by_nccl(2), "save-dir=" + saved.path().string()));
    for (const Options& devices : {by_nccl(2), kInHostMemory}) {
      const auto same = continued(devices, devices);
      for (std::size_t rank = 0; rank < same.size(); ++rank)
        EXPECT_EQ(session_runner::difference(whole[rank].whole, same[rank].whole), "");
      EXPECT_EQ(same[0].bytes_sent, whole[0].bytes_sent);
    }
    for (const auto& [first, second] :
         {std::pair{by_nccl(2), cpu}, std::pair{cpu, kInHostMemory}}) {
      const auto other = continued(first, second);
      EXPECT_LT(distance(whole[0], other[0]), 1e-10);
      EXPECT_EQ(other[0].bytes_sent, whole[0].bytes_sent);
    }
  }
}

// A step that fails has encoded gradients: the error becomes that of the step before.
TEST_F(CudaCodes, AFailedStepLeavesTheErrorOfTheOneBefore) {
  for (const auto& [codes, devices] :
       {std::pair{kCodes[1], by_nccl(kRanks)}, std::pair{kCodes[1], kInHostMemory},
        std::pair{kCodes[2], by_nccl(kRanks)}, std::pair{kCodes[2], kInHostMemory},
        std::pair{kCodes[3], by_nccl(kRanks)}, std::pair{kCodes[3], kInHostMemory},
        std::pair{kPowerSgd, by_nccl(kRanks)}, std::pair{kPowerSgd, kInHostMemory}}) {
    const Options options = with(kOfBuckets, codes, devices, "steps=9");
    changing_ranks::Job job(options, kRanks);
    job.join(kRanks);
    job.until_death(1, 5);
    const auto expected = train(kRanks, with(options, "steps=5"));
    const auto first = errors_of(job.kept_by(0).state.checkpoint.value()),
               second = errors_of(job.kept_by(1).state.checkpoint.value());
    ASSERT_FALSE(first.empty());
    EXPECT_TRUE(first == errors_of(expected[0].whole));
    EXPECT_TRUE(second == errors_of(expected[2].whole));
  }
}

TEST_F(CudaCodes, GoOnWhenRanksLeaveAndJoin) {
  for (const Options& codes : {kCodes[0], kCodes[2], kCodes[3], kPowerSgd})
    for (const Options& devices : {by_nccl(kRanks), kInHostMemory})
      changing_ranks::expect_equal_after_changes(with(kOfBuckets, codes, devices), kRanks);
}

}  // namespace
