// Averagings of parameters on CUDA devices: over NCCL, or with what ranks exchange in host memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/test_support.h"
#include "tests/training/changing_ranks.h"
#include "tests/training/cuda/cuda_ranks.h"
#include "tests/training/session_runner.h"

namespace {

using cuda_ranks::expect_equal_parameters;
using cuda_ranks::kRanks;
using session_runner::distance;
using session_runner::Options;
using session_runner::RankResult;
using session_runner::same_bits;
using session_runner::train;
using session_runner::with;
using test_support::TemporaryDirectory;

// Thirteen samples: the ranks' shares are unequal.
const Options kMlp =
    with(cuda_ranks::small_mlp(),
         "batch-size=13 steps=7 lr=0.05 momentum=0.9 weight-decay=0.001 sync-every=2");
const Options kStaged = cuda_ranks::on_devices(kRanks, /*nccl=*/false);

Options over_nccl(int world) { return cuda_ranks::on_devices(world, /*nccl=*/true); }

class CudaAveraging : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = cuda_ranks::missing(/*nccl=*/true); !missing.empty())
      GTEST_SKIP() << missing;
  }
};

std::string text_of(const Options& options) {
  std::string text;
  for (const auto& [name, value] : options) text += name + "=" + value + " ";
  return text;
}

// Everything that a checkpoint contains is equal, also the outer state and the counters.
void expect_same_state(int world, const Options& options, double from_cpu = 1e-5) {
  const auto nccl = train(world, with(options, over_nccl(world))),
             staged = train(world, with(options, kStaged));
  expect_equal_parameters(nccl);
  for (std::size_t rank = 0; rank < nccl.size(); ++rank)
    EXPECT_EQ(session_runner::difference(staged[rank].whole, nccl[rank].whole), "") << rank;
  EXPECT_EQ(nccl[0].averagings, staged[0].averagings);
  EXPECT_EQ(nccl[0].bytes_sent, staged[0].bytes_sent);
  EXPECT_EQ(nccl[0].spreads, staged[0].spreads);
  EXPECT_FALSE(nccl[0].spreads.empty());
  EXPECT_LT(distance(train(world, with(options, "device=cpu"))[0], nccl[0]), from_cpu);
}

const Options kPolicies[] = {
    "sync=params",
    "sync=params average-state=all",
    "sync=params average-state=momentum:2",
    "sync=diloco",
    "sync=diloco outer-lr=0.7 outer-momentum=0.9 average-state=all",
    "sync=slowmo",
    "sync=post-local sync-warmup=2",
    "sync=diloco sync-warmup=2",
};

TEST_F(CudaAveraging, HasTheBitsOfExchangesInHostMemory) {
  for (const Options& policy : kPolicies)
    for (const int world : {2, 3}) {
      SCOPED_TRACE(policy.at("sync") + " on " + std::to_string(world));
      expect_same_state(world, with(kMlp, policy));
    }
}

// Each fragment's result is merged a step after it was sent, or in the step that sends it.
const Options kStreaming[] = {
    "sync=streaming sync-fragments=2 sync-overlap=1",
    "sync=streaming sync-fragments=2 sync-overlap=1 sync-mixing=0.3 outer-lr=0.7 "
    "outer-momentum=0.9 sync-warmup=2",
    "sync=streaming sync-fragments=1 sync-mixing=1",
    "sync=streaming sync-every=4 sync-fragments=2 sync-overlap=3",
};

const Options kCoded[] = {
    "sync=params compress=int8",
    "sync=diloco compress=int4 average-state=all",
    "sync=diloco compress=sparse sparse-ratio=0.2 sparse-decay=0.9 outer-momentum=0",
    "sync=streaming sync-fragments=2 sync-overlap=1 compress=int8",
    "sync=streaming sync-fragments=2 sync-overlap=1 compress=sparse sparse-ratio=0.1 sparse-bits=4",
};
const Options kInPairs[] = {
    "sync=gossip",
    "sync=gossip outer-momentum=0.5 sync-warmup=2",
};
// No rank is ever late.
const Options kStale = "sync=diloco stale=2 stale-patience=1000000";

// In float64 both kinds of devices have the same gradients but for the last bits, so that an error
// in an averaging is visible, and the codes are the same.
void expect_values_of_cpu(const Options& policy) {
  for (const int world : {2, 3}) {
    SCOPED_TRACE(text_of(policy) + "on " + std::to_string(world));
    const Options options = with(kMlp, "dtype=f64", policy);
    const auto cpu = train(world, with(options, "device=cpu")),
               nccl = train(world, with(options, over_nccl(world))),
               staged = train(world, with(options, kStaged));
    expect_equal_parameters(nccl);
    for (std::size_t rank = 0; rank < nccl.size(); ++rank)
      EXPECT_EQ(session_runner::difference(staged[rank].whole, nccl[rank].whole), "") << rank;
    EXPECT_LT(distance(cpu[0], nccl[0]), 1e-10);
    EXPECT_EQ(cpu[0].averagings, nccl[0].averagings);
    EXPECT_EQ(cpu[0].bytes_sent, nccl[0].bytes_sent);
    EXPECT_EQ(cpu[0].spreads.size(), nccl[0].spreads.size());
  }
}

TEST_F(CudaAveraging, OfFragmentsHasTheValuesOfTheCpu) {
  for (const Options& policy : kStreaming) expect_values_of_cpu(policy);
  // One fragment that is merged at once is all of diloco.
  const auto diloco = train(2, with(kMlp, "sync=diloco", over_nccl(2))),
             streaming = train(2, with(kMlp, kStreaming[2], over_nccl(2)));
  EXPECT_TRUE(same_bits(diloco[0], streaming[0], io::Section::kParameter));
}

TEST_F(CudaAveraging, ByCodesHasTheValuesOfTheCpu) {
  for (const Options& policy : kCoded) expect_values_of_cpu(policy);
}

TEST_F(CudaAveraging, InPairsHasTheValuesOfTheCpu) {
  for (const Options& policy : kInPairs) expect_values_of_cpu(policy);
}

TEST_F(CudaAveraging, WithoutLateRanksHasTheValuesOfTheCpu) { expect_values_of_cpu(kStale); }

TEST_F(CudaAveraging, HasTheSameBitsBesideOtherOptions) {
  for (const Options& more : {Options("model=convnet synthetic-shape=8x8x1 average-buffers=true"),
                              Options("freeze=layers.0.*"), Options("local-steps=3:2"),
                              Options("eval-every=3"), Options("verify-every=2")}) {
    SCOPED_TRACE(more.begin()->first + "=" + more.begin()->second);
    expect_same_state(2, with(kMlp, "sync=diloco", more));
  }
  // AdamW divides by the size of gradients, so that the rounding of small ones is visible.
  expect_same_state(
      2, with(kMlp, "sync=diloco optimizer=adamw lr=0.001 momentum= average-state=all"), 1e-4);
}

// Copies the state to the mirror and back after each step, which rounds all short copies again.
void copy_state(int, engine::TrainState& state) {
  const engine::HostView view(state.home, engine::Access::kWrite);
}

// The kernels read short copies of the weights, which follow each averaging.
TEST_F(CudaAveraging, HasTheSameBitsInShortTypes) {
  for (const Options& chosen : {with(kPolicies[3], "amp=O2 loss-scale=dynamic"),
                                with(kStreaming[0], "amp=bf16"), with(kStale, "amp=bf16")}) {
    SCOPED_TRACE(text_of(chosen));
    const Options options = with(kMlp, chosen);
    const auto nccl = train(2, with(options, over_nccl(2))),
               copied = train(2, with(options, kStaged), copy_state);
    expect_equal_parameters(nccl);
    EXPECT_EQ(session_runner::difference(copied[0].whole, nccl[0].whole), "");
  }
}

// Copies between a device and its mirror wait for exchanges in flight.
TEST_F(CudaAveraging, CopiesOfTheStateDuringAnExchangeChangeNothing) {
  for (const Options& policy : {kStreaming[3], with(kStreaming[3], "compress=int8")})
    for (const Options& devices : {over_nccl(2), kStaged}) {
      SCOPED_TRACE(text_of(with(policy, devices)));
      const Options options = with(kMlp, policy, devices);
      const auto plain = train(2, options), copied = train(2, options, copy_state);
      EXPECT_EQ(session_runner::difference(plain[0].whole, copied[0].whole), "");
    }
}

// Two samples for three ranks: one of them has none, and no weight.
TEST_F(CudaAveraging, ARankWithoutSamplesFollows) {
  for (const char* sync : {"sync=params", "sync=diloco"})
    expect_same_state(kRanks, with(kMlp, "batch-size=2 synthetic-size=20", sync));
}

// A mark in a mirror is there as long as nothing is copied to it.
enum class Mirror { kValues, kGradients };
bool mirror_stays(const Options& options, Mirror mirror = Mirror::kValues) {
  std::vector<char> kept(2, 1);
  train(2, options, [&kept, mirror](int rank, engine::TrainState& state) {
    const engine::ParameterBuffer& parameters = state.model.parameters;
    float& mirrored =
        (mirror == Mirror::kValues ? parameters.values : parameters.gradients).span<float>()[0];
    constexpr float kMark = 12345;
    if (state.progress.global_step >= 3 && mirrored != kMark)
      kept[static_cast<std::size_t>(rank)] = 0;
    mirrored = kMark;
  });
  return kept == std::vector<char>{1, 1};
}

TEST_F(CudaAveraging, LeavesTheMirrorAlone) {
  const Options quiet = with(kMlp, "log-every=0 eval-every=0");
  for (const Options& policy :
       {kPolicies[0], kPolicies[1], kPolicies[3], kPolicies[5], kStreaming[0], kStreaming[2],
        kCoded[0], kCoded[1], kCoded[2], kCoded[3], kInPairs[0], kInPairs[1]}) {
    SCOPED_TRACE(text_of(policy));
    EXPECT_TRUE(mirror_stays(with(quiet, policy, over_nccl(2))));
    EXPECT_TRUE(mirror_stays(with(quiet, policy, kStaged)));
  }
  EXPECT_FALSE(mirror_stays(with(quiet, "sync=params verify-every=1", over_nccl(2))));
}

// The memory of the gradients holds what ranks exchange.
TEST_F(CudaAveraging, OverNcclNothingIsExchangedInHostMemory) {
  const Options quiet = with(kMlp, "log-every=0 eval-every=0");
  for (const Options& policy : {kPolicies[0], kCoded[2], kInPairs[0]}) {
    SCOPED_TRACE(text_of(policy));
    EXPECT_TRUE(mirror_stays(with(quiet, policy, over_nccl(2)), Mirror::kGradients));
  }
  EXPECT_FALSE(mirror_stays(with(quiet, kInPairs[0], kStaged), Mirror::kGradients));
}

TEST_F(CudaAveraging, ThePlanNamesWhereItTakesPlace) {
  const auto expect_line = [](const Options& options, const std::string& line) {
    const std::vector<std::string> plan = train(2, with(kMlp, options))[0].plan;
    EXPECT_TRUE(std::ranges::find(plan, line) != plan.end()) << text_of(options);
  };
  const std::string nccl = "averagings on the devices, over NCCL",
                    codes = "averagings on the devices; codes of changes pass through host memory";
  expect_line(with("sync=params", over_nccl(2)), nccl);
  expect_line(with("sync=streaming", over_nccl(2)), nccl);
  expect_line(with("sync=params", kStaged),
              "averagings on the devices; what ranks exchange passes through host memory");
  expect_line(with("sync=params compress=int8", over_nccl(2)), nccl);
  expect_line(with("sync=params compress=int8", kStaged), codes);
  expect_line(with("sync=params compress=sparse", over_nccl(2)), nccl);
  expect_line(with("sync=params compress=sparse", kStaged), codes);
  expect_line(with("sync=gossip", over_nccl(2)), nccl);
  expect_line(with("sync=gossip", kStaged),
              "averagings on the devices; pairs exchange parameters through host memory");
  expect_line(with(kStale, over_nccl(2)),
              "averagings in host memory: devices copy their parameters to and from it");
  const std::vector<RankResult> on_cpu = train(2, with(kMlp, "sync=params device=cpu"));
  for (const std::string& line : on_cpu[0].plan)
    EXPECT_EQ(line.find("averagings on"), std::string::npos) << line;
}

// A stop within a period averages first, as every save does.
TEST_F(CudaAveraging, ResumesOnTheOtherKindOfDevice) {
  const Options cpu = "device=cpu";
  // Step 3 saves while an exchange of kStreaming[3] is in flight.
  for (const Options& policy :
       {kPolicies[1], kPolicies[4], kStreaming[3], kCoded[1], kCoded[2], kInPairs[1]}) {
    SCOPED_TRACE(text_of(policy));
    const Options base = with(kMlp, "dtype=f64", policy, "save-every=3s");
    const auto continued = [&](const Options& first, const Options& second) {
      return cuda_ranks::train_in_two_runs(base, first, second);
    };
    const TemporaryDirectory saved;
    const auto saving = train(2, with(base, over_nccl(2), "save-dir=" + saved.path().string()))[0];
    const auto same = continued(over_nccl(2), over_nccl(2));
    EXPECT_EQ(session_runner::difference(saving.whole, same[0].whole), "");
    EXPECT_LT(distance(saving, continued(over_nccl(2), cpu)[0]), 1e-10);
    EXPECT_LT(distance(saving, continued(cpu, kStaged)[0]), 1e-10);
  }
}

TEST_F(CudaAveraging, GoesOnWhenRanksLeaveAndJoin) {
  for (const Options& policy : {kPolicies[1], kPolicies[4], kStreaming[0], kStreaming[3], kCoded[0],
                                kCoded[2], kInPairs[0]}) {
    SCOPED_TRACE(text_of(policy));
    changing_ranks::expect_equal_after_changes(with(kMlp, policy, over_nccl(kRanks)), kRanks);
  }
}

}  // namespace
