// Averagings that do not wait for late ranks: what joins which mean, who waits for whom, and that
// nothing differs if no rank is late.
#include "engine/averaging/stale/stale_averaging.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backends/backend_error.h"
#include "backends/group.h"
#include "engine/averaging/policies/averaging_policies.h"
#include "engine/averaging/stale/stale_rounds.h"
#include "engine/core/random.h"
#include "tests/support/time_limits.h"

namespace engine {
namespace {

constexpr double kForever = 1e9;

// One rank: its parameters, and a policy over them.
struct Rank {
  explicit Rank(backends::Communicator& of)
      : communicator(of),
        parameters(DType::kF64,
                   {{"a", TensorLayout::plain({7, 5}), DType::kF64},
                    {"b", TensorLayout::plain({3}), DType::kF64},
                    {"frozen", TensorLayout::plain({2}), DType::kF64}},
                   {}, /*frozen=*/1) {}

  // Makes a step that adds `change` to all trained parameters. Returns the steps done with it.
  std::int64_t step(double change, StepCounts counts) {
    static_cast<void>(policy->begin_step(home));
    add(change);
    return 1 + policy->end_step(counts, 0.1, home);
  }
  void add(double change) {
    const auto values = parameters.values.span<double>();
    for (const FlatBuffer::Slot& slot : parameters.gradients.slots())
      for (std::int64_t i = 0; i < slot.count; ++i)
        values[static_cast<std::size_t>(slot.offset + i)] += change;
  }
  double first() const { return parameters.values.span<double>()[0]; }

  backends::Communicator& communicator;
  ParameterBuffer parameters;
  StateHome home;
  std::unique_ptr<AveragingPolicy> policy;
};

void on_ranks(int world, const std::function<void(Rank&, int)>& run) {
  auto groups = backends::make_inproc_groups(world, test_support::deadline_ms(20'000));
  std::vector<std::future<void>> ranks;
  ranks.reserve(groups.size());
  for (int r = 0; r < world; ++r)
    ranks.push_back(std::async(std::launch::async, [&, r] {
      const auto communicator = groups[static_cast<std::size_t>(r)]->make_communicator();
      Rank rank(*communicator);
      run(rank, r);
    }));
  for (std::future<void>& rank : ranks) rank.get();
}

std::unique_ptr<AveragingPolicy> make_stale(Rank& rank, std::int64_t every, std::int64_t behind,
                                            double patience,
                                            const std::optional<OuterOptions>& outer = {}) {
  return make_stale_averaging(rank.communicator, rank.parameters,
                              {.name = "stale",
                               .schedule = SyncSchedule::constant(every, 0),
                               .outer = outer,
                               .stale = {behind, patience}});
}

// Waits until this rank's thread has ended as many averagings.
void await_averagings(Rank& rank, std::int64_t count) {
  while (rank.policy->take_report().averagings < count) std::this_thread::yield();
}

// The change of a rank in a step, by element.
void train(Rank& rank, int r, std::int64_t step) {
  const auto values = rank.parameters.values.span<double>();
  for (const FlatBuffer::Slot& slot : rank.parameters.gradients.slots())
    for (std::int64_t k = 0; k < slot.count; ++k) {
      const auto i = static_cast<std::size_t>(slot.offset + k);
      values[i] += uniform_float(
          philox(static_cast<std::uint64_t>(r), static_cast<std::uint64_t>(step), i)[0]);
    }
}

// Ranks have unequal samples, the last one of three none.
std::vector<double> run_policy(Rank& rank, int r, int world) {
  const std::int64_t samples = world > 2 && r == world - 1 ? 0 : r + 1;
  std::int64_t global = 0;
  for (int other = 0; other < world; ++other)
    global += world > 2 && other == world - 1 ? 0 : other + 1;
  for (std::int64_t step = 1; step <= 14; ++step) {
    static_cast<void>(rank.policy->begin_step(rank.home));
    train(rank, r, step);
    EXPECT_EQ(rank.policy->end_step({.local = samples, .global = global}, 0.1, rank.home), 0);
    EXPECT_EQ(rank.policy->is_in_sync(), step % 3 == 0);
    if (step % 5 == 0) rank.policy->synchronize(rank.home);
  }
  rank.policy->synchronize(rank.home);
  EXPECT_TRUE(rank.policy->is_in_sync());
  const auto values = rank.parameters.values.span<double>();
  return {values.begin(), values.end()};
}

TEST(StaleAveraging, WithoutLateRanksHasTheBitsOfWaitingForAll) {
  const std::optional<OuterOptions> outer_steps[] = {
      std::nullopt, OuterOptions{0.7, 0.9, true, false},
      OuterOptions{std::nullopt, std::nullopt, true, false}};
  for (const auto& outer : outer_steps) {
    for (const int world : {2, 3}) {
      std::vector<std::vector<double>> stale(static_cast<std::size_t>(world)), plain = stale;
      std::atomic<std::int64_t> bytes = 0;
      on_ranks(world, [&](Rank& rank, int r) {
        rank.policy = make_stale(rank, 3, 2, kForever, outer);
        stale[static_cast<std::size_t>(r)] = run_policy(rank, r, world);
        bytes += rank.policy->take_report().bytes_sent;
      });
      on_ranks(world, [&](Rank& rank, int r) {
        ThreadPool pool(2);
        KernelContext context{.device = {}, .threads = &pool, .scratch = {}};
        ParameterAveragingOptions options;
        options.schedule = SyncSchedule::constant(3, 0);
        options.outer = outer;
        rank.policy =
            make_parameter_averaging(rank.communicator, rank.parameters, context, options);
        plain[static_cast<std::size_t>(r)] = run_policy(rank, r, world);
        bytes -= rank.policy->take_report().bytes_sent;
        rank.policy.reset();
      });
      EXPECT_EQ(stale, plain) << world << " ranks";
      EXPECT_EQ(stale[0], stale[1]);
      EXPECT_EQ(bytes, 0);
    }
  }
}

// Rank 1 is in its first step until rank 0 has averaged three times. Its change of 10, from 0,
// joins the fourth averaging, in which rank 0 has 3 + 1 and rank 1 now also has 3 + 10.
TEST(StaleAveraging, ALateChangeJoinsTheNextAveraging) {
  std::promise<void> averaged, continued;
  std::shared_future<void> three_times = averaged.get_future().share(),
                           from_there = continued.get_future().share();
  on_ranks(2, [&](Rank& rank, int r) {
    rank.policy = make_stale(rank, 1, 3, 0);
    if (r == 0) {
      for (int i = 1; i <= 3; ++i) {
        EXPECT_EQ(rank.step(1, {.local = 1, .global = 2}), 1);
        EXPECT_EQ(rank.first(), i);
        EXPECT_FALSE(rank.policy->is_in_sync());
      }
      averaged.set_value();
      from_there.wait();
    } else {
      static_cast<void>(rank.policy->begin_step(rank.home));
      three_times.wait();
      await_averagings(rank, 3);
      rank.add(10);
      EXPECT_EQ(rank.policy->end_step({.local = 1, .global = 2}, 0.1, rank.home), 2)
          << "it is at step 3 now";
      EXPECT_EQ(rank.first(), 3);
      continued.set_value();
    }
    rank.step(r == 0 ? 1 : 10, {.local = 1, .global = 2, .all_meet = true});
    EXPECT_DOUBLE_EQ(rank.first(), (4 + 13 + (3 + 10)) / 3.0);
    EXPECT_TRUE(rank.policy->is_in_sync());
    rank.policy->synchronize(rank.home);
    EXPECT_DOUBLE_EQ(rank.first(), 10);
    EXPECT_EQ(find_counter(rank.policy->counters(), "missed_averagings", -1), 3);
    EXPECT_EQ(find_counter(rank.policy->counters(), "skipped_steps.0", -1), 0);
    EXPECT_EQ(find_counter(rank.policy->counters(), "skipped_steps.1", -1), 2);
    const FlatBuffer& values = rank.parameters.values;
    EXPECT_EQ(values.view(*values.find("frozen")).as<double>()[0], 0);
  });
}

// The pause makes a policy that does not wait fail; one that waits passes however long it is.
TEST(StaleAveraging, WaitsForARankThatIsTooFarBehind) {
  std::promise<void> averaged;
  std::shared_future<void> once = averaged.get_future().share();
  std::atomic<bool> ends_step = false;
  on_ranks(2, [&](Rank& rank, int r) {
    rank.policy = make_stale(rank, 2, 1, 0);
    const StepCounts counts{.local = 1, .global = 2};
    if (r == 0) {
      for (int i = 1; i <= 4; ++i) {
        rank.step(1, counts);
        if (i == 2) averaged.set_value();
      }
      EXPECT_TRUE(ends_step);
    } else {
      static_cast<void>(rank.policy->begin_step(rank.home));
      once.wait();
      await_averagings(rank, 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      ends_step = true;
      EXPECT_EQ(rank.policy->end_step(counts, 0.1, rank.home), 1);
      for (std::int64_t done = 2; done < 4;) done += rank.step(1, counts);
    }
    rank.policy->synchronize(rank.home);
  });
}

// Rank 0 waits at the barrier so early that rank 1 knows of it long before it arrives.
TEST(StaleAveraging, BringsLateRanksToAMeeting) {
  constexpr std::int64_t kMeeting = 1'000'000'000;
  on_ranks(2, [&](Rank& rank, int r) {
    rank.policy = make_stale(rank, 2 * kMeeting, 1, 0);
    std::int64_t done = r == 0 ? kMeeting - 1 : 0, made = 0;
    rank.policy->restore_counters({{"updates", done}});
    while (done < kMeeting) {
      done += rank.step(1, {.local = 1, .global = 2, .all_meet = r == 0});
      ++made;
    }
    EXPECT_EQ(done, kMeeting);
    EXPECT_EQ(rank.first(), made) << "its change stays until an averaging";
    rank.policy->synchronize(rank.home);
    const PolicyCounters counters = rank.policy->counters();
    const std::int64_t skipped = find_counter(counters, "skipped_steps.1", -1);
    EXPECT_EQ(made + (r == 1 ? skipped : kMeeting - 1), kMeeting);
    const auto steps = static_cast<double>(kMeeting - skipped);
    EXPECT_DOUBLE_EQ(rank.first(), (1 + steps * steps) / (1 + steps));
  });
}

TEST(StaleAveraging, ARankThatEndsEarlyFailsTheOthers) {
  on_ranks(2, [&](Rank& rank, int r) {
    rank.policy = make_stale(rank, 1, 1, kForever);
    static_cast<void>(rank.policy->begin_step(rank.home));
    if (r == 1) return;
    EXPECT_THROW(rank.policy->end_step({.local = 1, .global = 2}, 0.1, rank.home),
                 backends::PeerError);
    EXPECT_THROW(static_cast<void>(rank.policy->begin_step(rank.home)), backends::PeerError);
  });
}

class NoWork final : public StaleWork {
 public:
  std::int64_t offer() override { return 0; }
  void sum(const StaleRound&) override {}
  void finish(const StaleRound&) override {}
};

// Between the look of a rank's own thread at the rounds and its arrival one may close.
TEST(StaleRounds, ARankThatComesAfterTheCloseHasMissedIt) {
  on_ranks(2, [](Rank& rank, int r) {
    NoWork work;
    StaleRounds rounds(rank.communicator, {.max_behind = 2, .patience = 0}, work);
    rounds.start();
    const StaleRounds::Arrival arrival{.step = 8, .samples = 1};
    if (r == 0) {
      EXPECT_EQ(rounds.join(arrival), StaleRounds::Outcome::kClosed);
    } else {
      EXPECT_TRUE(test_support::eventually([&] { return rounds.standing().behind == 1; }));
      EXPECT_EQ(rounds.join(arrival), StaleRounds::Outcome::kMissed);
      rounds.leave_late([] {});
    }
    EXPECT_EQ(rounds.join({.kind = StaleRound::Kind::kDrain, .step = 8, .samples = 1}),
              StaleRounds::Outcome::kFull);
  });
}

}  // namespace
}  // namespace engine
