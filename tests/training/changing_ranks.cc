// One group of threads after the other, with what their ranks carry over.
#include "tests/training/changing_ranks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <utility>

#include "backends/backend_error.h"
#include "engine/train/saving/weights.h"
#include "tests/support/hooked_group.h"
#include "tests/support/time_limits.h"
#include "tools/launch/workers/worker_threads.h"
#include "tools/report/text/session_text.h"

namespace changing_ranks {
namespace {

struct RankDies : std::runtime_error {
  RankDies() : std::runtime_error("this rank dies") {}
};

// Calls `act` after each step.
class AfterEachStep : public engine::TrainObserver {
 public:
  AfterEachStep(std::function<void(std::int64_t step)> act, std::vector<std::string>& saved)
      : act_(std::move(act)), saved_(saved) {}
  void on_step(const engine::TrainProgress& p) override { act_(p.global_step); }
  void on_save(const engine::TrainProgress&, const std::string& path) override {
    saved_.push_back(path);
  }

 private:
  std::function<void(std::int64_t)> act_;
  std::vector<std::string>& saved_;
};

}  // namespace

Job::Job(const session_runner::Options& options, int max_ranks, bool batch_scales)
    : config_(session_runner::make_config(options)) {
  config_.data.batch_scales = config_.update.with_batch = batch_scales;
  config_.min_ranks = 1;
  config_.data.max_ranks = max_ranks;
}

void Job::join(int count) {
  for (int i = 0; i < count; ++i) ranks_.push_back(std::make_unique<tools::RetainedState>());
}

void Job::until_death(int who, std::int64_t step) {
  run([&](int rank, std::int64_t done) {
    // The group may go on from a later step than the one before has died in.
    if (rank == who && done >= step) throw RankDies();
  });
  ranks_.erase(ranks_.begin() + who);
}

bool Job::until_death_in_call(int who, std::int64_t step, int call) {
  std::atomic<int> calls = 0;
  std::atomic<bool> counts = false, dies = false;
  before_call_ = [&](int rank) {
    if (rank != who || !counts || ++calls != call) return;
    dies = true;
    throw RankDies();
  };
  run([&](int rank, std::int64_t done) {
    if (rank == who && done >= step) counts = true;
  });
  before_call_ = {};
  if (dies) ranks_.erase(ranks_.begin() + who);
  return dies;
}

bool Job::until_pause(std::int64_t step) {
  paused_ = false;
  pause_at_ = step;
  run([](int, std::int64_t) {});
  pause_at_ = -1;
  return paused_;
}

std::vector<std::int64_t> Job::until_failure() {
  run([](int, std::int64_t) {});
  std::vector<std::int64_t> steps;
  for (const auto& rank : ranks_) steps.push_back(rank->state.checkpoint.value().global_step);
  return steps;
}

std::vector<session_runner::RankResult> Job::to_the_end() {
  run([](int, std::int64_t) {});
  return results_;
}

void Job::run(const std::function<void(int rank, std::int64_t step)>& act) {
  const int world = static_cast<int>(ranks_.size());
  results_.assign(ranks_.size(), {});
  beginnings_.assign(ranks_.size(), {});
  const auto body = [&](std::unique_ptr<backends::Group> inproc) {
    const int rank = inproc->rank();
    const auto group = std::make_unique<test_support::HookedGroup>(std::move(inproc), [this, rank] {
      if (before_call_) before_call_(rank);
    });
    const auto own = static_cast<std::size_t>(rank);
    const std::atomic<int> never{0};
    try {
      tools::SessionOptions options = config_;
      options.keeping.before_write = [this] {
        if (before_write_) before_write_();
        return std::string();
      };
      tools::TrainSession session(options, *group, nullptr, ranks_[own].get());
      static_cast<void>(session.start_state());
      beginnings_[own] = session_runner::whole_state(session.state());
      if (rank == 0) scale_line_ = tools::scale_text(session.facts());
      std::int64_t done = session.state().progress.global_step;
      session.add_observer(std::make_unique<AfterEachStep>(
          [&](std::int64_t step) {
            done = step;
            act(rank, step);
          },
          results_[own].saved));
      const engine::TrainResult end =
          session.run(never, {.pause = [&] { return pause_at_ >= 0 && done >= pause_at_; }});
      if (rank == 0) paused_ = end.paused;
      results_[own].end = end.progress;
      const engine::HostView view(session.state().home, engine::Access::kRead);
      results_[own].state = engine::export_state(session.state().model, {});
      results_[own].whole = session_runner::whole_state(session.state());
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

void expect_equal_after_changes(const session_runner::Options& options, int ranks) {
  Job job(session_runner::with(options, "steps=12"), ranks);
  job.join(ranks);
  job.until_death(1, 3);
  EXPECT_TRUE(job.until_pause(7));
  job.join(1);
  const std::vector<session_runner::RankResult> ends = job.to_the_end();
  ASSERT_EQ(ends.size(), static_cast<std::size_t>(ranks));
  for (const session_runner::RankResult& end : ends) {
    EXPECT_EQ(end.end.global_step, 12);
    EXPECT_TRUE(session_runner::same_bits(ends[0], end, io::Section::kParameter));
  }
}

}  // namespace changing_ranks
