// Trainings whose ranks change on the way: what is left goes on from memory, and ends as if nothing
// had happened.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "backends/backend_error.h"
#include "engine/train/saving/weights.h"
#include "tests/engine/train/session_runner.h"
#include "tests/support/time_limits.h"
#include "tools/session/train_session.h"
#include "tools/workers/worker_threads.h"

namespace {

using namespace session_runner;

struct RankDies : std::runtime_error {
  RankDies() : std::runtime_error("this rank dies") {}
};

// Calls `act` after each step.
class AfterEachStep : public engine::TrainObserver {
 public:
  explicit AfterEachStep(std::function<void(std::int64_t step)> act) : act_(std::move(act)) {}
  void on_step(const engine::TrainProgress& p) override { act_(p.global_step); }

 private:
  std::function<void(std::int64_t)> act_;
};

// The training, one group after the other.
class Job {
 public:
  Job(const Options& options, int most_ranks) : config_(make_config(options)) {
    config_.least_ranks = 1;
    config_.most_ranks = most_ranks;
  }

  // Ranks without memory come in behind those that are there.
  void join(int count) {
    for (int i = 0; i < count; ++i) ranks_.push_back(std::make_unique<tools::Carried>());
  }
  // After `step`, rank `who` dies while the others go on into the next step.
  void until_death(int who, std::int64_t step) {
    run([&](int rank, std::int64_t done) {
      if (rank == who && done == step) throw RankDies();
    });
    ranks_.erase(ranks_.begin() + who);
  }
  // Some step from `step` on is the last one of this group; false: that came too late.
  bool until_pause(std::int64_t step) {
    paused_ = false;
    pause_at_ = step;
    run([](int, std::int64_t) {});
    pause_at_ = -1;
    return paused_;
  }
  std::vector<RankResult> to_the_end() {
    run([](int, std::int64_t) {});
    return results_;
  }

 private:
  void run(const std::function<void(int rank, std::int64_t step)>& act) {
    const int world = static_cast<int>(ranks_.size());
    results_.assign(ranks_.size(), {});
    const auto body = [&](std::unique_ptr<backends::Group> group) {
      const int rank = group->rank();
      const auto own = static_cast<std::size_t>(rank);
      const std::atomic<int> never{0};
      try {
        tools::TrainSession session(tools::session_options(config_), *group, nullptr,
                                    ranks_[own].get());
        static_cast<void>(session.start_state());
        std::int64_t done = session.state().progress.global_step;
        session.add_observer(std::make_unique<AfterEachStep>([&](std::int64_t step) {
          done = step;
          act(rank, step);
        }));
        const engine::TrainResult end =
            session.run(never, [&] { return pause_at_ >= 0 && done >= pause_at_; });
        if (rank == 0) paused_ = end.paused;
        results_[own].end = end.progress;
        results_[own].state = engine::export_state(session.state().model, {});
        group->leave();
      } catch (const backends::PeerError&) {
        return 0;  // what it has is carried over
      }
      return 0;
    };
    try {
      tools::run_inproc_ranks(world, test_support::deadline_ms(20'000), body);
    } catch (const RankDies&) {
      return;
    }
  }

  tools::RunConfig config_;
  std::vector<std::unique_ptr<tools::Carried>> ranks_;
  std::vector<RankResult> results_;
  std::int64_t pause_at_ = -1;
  bool paused_ = false;
};

class CanonicalOrderOfChangingRanks : public testing::TestWithParam<Options> {};

TEST_P(CanonicalOrderOfChangingRanks, EndsWithTheSameBits) {
  const Options options = with(
      {{"reduction-order", "canonical"}, {"steps", "12"}, {"batch-size", "21"}, {"lr", "0.05"}},
      GetParam());
  const RankResult whole = train(1, options)[0];
  Job job(options, 5);
  job.join(5);
  job.until_death(0, 2);  // the first
  job.until_death(3, 4);  // the last
  job.join(2);
  EXPECT_TRUE(job.until_pause(6));
  job.join(1);
  job.until_death(1, 9);
  for (const RankResult& rank : job.to_the_end()) {
    EXPECT_EQ(rank.end.global_step, 12);
    EXPECT_EQ(rank.end.samples_seen, whole.end.samples_seen);
    EXPECT_TRUE(same_bits(whole, rank, io::Section::kParameter));
    EXPECT_TRUE(same_bits(whole, rank, io::Section::kBuffer));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, CanonicalOrderOfChangingRanks,
    testing::Values(
        Options{}, Options{{"optimizer", "adamw"}, {"lr", "0.001"}, {"ema", "0.9"}},
        Options{{"optimizer", "muon"}, {"clip-grad", "0.5"}},
        Options{{"model", "convnet"}, {"synthetic-shape", "8x8x1"}},
        Options{{"model", "resnet20-cifar"}, {"synthetic-shape", "8x8x3"}, {"sync-bn", "true"}},
        Options{{"model", "resnet20-cifar"}, {"synthetic-shape", "8x8x3"}}));

// Deaths and arrivals at random: 20 trainings, or as many as ENGINE_ELASTIC_HISTORIES says.
TEST(ChangingRanks, EndWithTheSameBitsWhateverHappens) {
  const char* given = std::getenv("ENGINE_ELASTIC_HISTORIES");
  const int histories = given != nullptr ? std::atoi(given) : 20;
  constexpr int kSteps = 14, kMostRanks = 8;
  const Options options{{"reduction-order", "canonical"},
                        {"steps", std::to_string(kSteps)},
                        {"batch-size", "19"},
                        {"synthetic-size", "100"},
                        {"optimizer", "adamw"},
                        {"lr", "0.001"}};
  const RankResult whole = train(1, options)[0];
  for (int seed = 1; seed <= histories; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 dice(static_cast<unsigned>(seed));
    const auto between = [&](int low, int high) {
      return low + static_cast<int>(dice() % static_cast<unsigned>(high - low + 1));
    };
    Job job(options, kMostRanks);
    int ranks = between(2, kMostRanks);
    job.join(ranks);
    for (int step = between(0, 3); step < kSteps - 1; step += between(1, 3)) {
      if (ranks > 1 && (ranks == kMostRanks || between(0, 1) == 0)) {
        job.until_death(between(0, ranks - 1), std::max(step, 1));
        --ranks;
      } else {
        if (!job.until_pause(step)) break;
        const int more = between(1, std::min(3, kMostRanks - ranks));
        job.join(more);
        ranks += more;
      }
    }
    for (const RankResult& rank : job.to_the_end()) {
      EXPECT_EQ(rank.end.samples_seen, whole.end.samples_seen);
      EXPECT_TRUE(same_bits(whole, rank, io::Section::kParameter));
    }
  }
}

TEST(ChangingRanks, EndWithTheSameNumbersInTheFastOrder) {
  const Options options{{"dtype", "f64"}, {"steps", "10"}, {"batch-size", "21"}};
  const RankResult whole = train(2, options)[0];
  Job job(options, 3);
  job.join(3);
  job.until_death(0, 3);
  job.join(1);
  job.until_death(1, 6);
  for (const RankResult& rank : job.to_the_end()) EXPECT_LT(distance(whole, rank), 1e-13);
}

class AveragingOfChangingRanks : public testing::TestWithParam<Options> {};

TEST_P(AveragingOfChangingRanks, GoesOnAndEndsTogether) {
  const Options options = with({{"steps", "20"}, {"batch-size", "24"}}, GetParam());
  Job job(options, 4);
  job.join(4);
  job.until_death(0, 6);
  EXPECT_TRUE(job.until_pause(10));
  job.join(1);
  job.until_death(2, 15);
  const std::vector<RankResult> ranks = job.to_the_end();
  for (const RankResult& rank : ranks) {
    EXPECT_EQ(rank.end.global_step, 20);
    EXPECT_TRUE(same_bits(ranks[0], rank, io::Section::kParameter));
  }
  // Not the same numbers, since what a lost rank had not averaged yet is lost with it.
  EXPECT_LT(distance(train(4, options)[0], ranks[0]), 0.4);
}

TEST_P(AveragingOfChangingRanks, GoesOnFromOneRank) {
  const Options options = with({{"steps", "30"}, {"batch-size", "24"}}, GetParam());
  Job job(options, 2);
  job.join(2);
  job.until_death(0, 6);
  EXPECT_TRUE(job.until_pause(10));
  job.join(1);
  for (const RankResult& rank : job.to_the_end()) EXPECT_EQ(rank.end.global_step, 30);
}

INSTANTIATE_TEST_SUITE_P(
    Policies, AveragingOfChangingRanks,
    testing::Values(Options{{"sync", "params"}, {"sync-every", "4"}},
                    Options{{"sync", "post-local"}, {"sync-every", "4"}, {"sync-warmup", "8"}},
                    Options{{"sync", "diloco"}, {"sync-every", "4"}},
                    Options{{"sync", "slowmo"}, {"sync-every", "4"}, {"average-state", "momentum"}},
                    Options{{"compress", "topk"}, {"topk-ratio", "0.2"}},
                    Options{{"compress", "powersgd"}}, Options{{"compress", "bf16"}}));

}  // namespace
