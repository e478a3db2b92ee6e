// Epochs that other numbers of ranks continue: whatever the sizes, the kind of shard, the policy
// and the steps at which the ranks change, each sample is used as often as the policy promises.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "io/data/order/sampler.h"

namespace io {
namespace {

using Indices = std::vector<std::int64_t>;

struct Stage {
  int ranks;
  std::int64_t batch, steps;  // the last stage ends with the epoch
};

struct Case {
  SamplerOptions options;
  std::int64_t epoch = 0;
  std::vector<Stage> stages;
};

std::string describe(const Case& c) {
  std::string text = std::to_string(c.options.size) + " samples, shard " +
                     std::to_string(static_cast<int>(c.options.shard)) + ", uneven " +
                     std::to_string(static_cast<int>(c.options.uneven)) +
                     (c.options.shuffle ? ", shuffled" : "") + ":";
  for (const Stage& s : c.stages)
    text += " " + std::to_string(s.steps) + " steps of " + std::to_string(s.batch) + " by " +
            std::to_string(s.ranks) + ";";
  return text;
}

struct Step {
  std::vector<Indices> ranks;
  Indices all() const {
    Indices ids;
    for (const Indices& rank : ranks) ids.insert(ids.end(), rank.begin(), rank.end());
    std::ranges::sort(ids);
    return ids;
  }
};

std::vector<Sampler> samplers_of(const Case& c, const Stage& stage,
                                 const std::vector<Division>& divisions) {
  std::vector<Sampler> all;
  SamplerOptions options = c.options;
  options.global_batch = stage.batch;
  options.world_size = stage.ranks;
  for (options.rank = 0; options.rank < stage.ranks; ++options.rank) {
    all.emplace_back(options);
    all.back().set_epoch(c.epoch, divisions);
  }
  return all;
}

Step step_of(const std::vector<Sampler>& samplers, std::int64_t step, std::int64_t taken) {
  Step made;
  std::int64_t count = 0;
  for (std::size_t rank = 0; rank < samplers.size(); ++rank) {
    const auto ids = samplers[rank].indices(step, taken);
    made.ranks.emplace_back(ids.begin(), ids.end());
    count += std::ssize(ids);
    EXPECT_EQ(std::ssize(ids), samplers[0].local_count(step, static_cast<int>(rank), taken));
    EXPECT_LE(std::ssize(ids), samplers[rank].max_local_count());
  }
  EXPECT_EQ(count, samplers[0].global_count(step, taken));
  return made;
}

// The steps of each stage, as runs that are resumed one after the other take them.
std::vector<std::vector<Step>> run(const Case& c) {
  std::vector<std::vector<Step>> stages;
  std::vector<Division> divisions{{0, c.stages.front().ranks}};
  std::int64_t done = 0;
  for (const Stage& stage : c.stages) {
    if (done > 0 && c.options.shard == Shard::kFile)
      divisions = continued_divisions(divisions, done, stage.ranks);
    else
      divisions = {{0, stage.ranks}};
    const bool last = &stage == &c.stages.back();
    const std::vector<Sampler> samplers = samplers_of(c, stage, divisions);
    const std::int64_t first = done / stage.batch, end = samplers[0].steps_per_epoch();
    std::int64_t taken = done % stage.batch;
    stages.emplace_back();
    // A stage that is not the last leaves a step.
    for (std::int64_t step = first;
         last ? step < end : step < std::min(first + stage.steps, end - 1); ++step) {
      stages.back().push_back(step_of(samplers, step, std::exchange(taken, 0)));
      done = (step + 1) * stage.batch;
    }
  }
  return stages;
}

void expect_uses(const Case& c, const std::vector<std::vector<Step>>& stages) {
  std::map<std::int64_t, std::int64_t> uses;
  std::int64_t used = 0;
  for (const auto& stage : stages)
    for (const Step& step : stage)
      for (const std::int64_t id : step.all()) ++uses[id], ++used;
  const std::int64_t size = c.options.size, ranks = c.stages.back().ranks;
  std::int64_t expected = size, most = 1;
  if (c.options.uneven == Uneven::kDrop) expected -= size % c.stages.back().batch;
  if (c.options.uneven == Uneven::kPad) expected = (size + ranks - 1) / ranks * ranks, most = ranks;
  EXPECT_EQ(used, expected);
  EXPECT_EQ(std::ssize(uses), std::min(size, expected));
  EXPECT_GE(uses.begin()->first, 0);
  EXPECT_LT(uses.rbegin()->first, size);
  for (const auto& [id, times] : uses) EXPECT_LE(times, most) << "sample " << id;
}

// Where every rank has equally many samples of a step.
void expect_even(const std::vector<std::vector<Step>>& stages) {
  for (const auto& stage : stages)
    for (const Step& step : stage)
      for (const Indices& rank : step.ranks) EXPECT_EQ(rank.size(), step.ranks[0].size());
}

// With kFile and kJoin: in a stage the ranks' samples are parts of the data set in the order of the
// ranks.
void expect_parts(const std::vector<std::vector<Step>>& stages) {
  for (const auto& stage : stages) {
    std::int64_t highest = -1;
    for (std::size_t rank = 0; !stage.empty() && rank < stage[0].ranks.size(); ++rank) {
      Indices ids;
      for (const Step& step : stage)
        ids.insert(ids.end(), step.ranks[rank].begin(), step.ranks[rank].end());
      if (ids.empty()) continue;
      EXPECT_GT(std::ranges::min(ids), highest) << "rank " << rank;
      highest = std::ranges::max(ids);
    }
  }
}

std::vector<Indices> in_order(const std::vector<std::vector<Step>>& stages) {
  std::vector<Indices> all;
  for (const auto& stage : stages)
    for (const Step& step : stage) all.insert(all.end(), step.ranks.begin(), step.ranks.end());
  return all;
}

class Random {
 public:
  explicit Random(int seed) : engine_(static_cast<unsigned>(seed)) {}
  int between(int low, int high) {
    return low + static_cast<int>(engine_() % static_cast<unsigned>(high - low + 1));
  }

 private:
  std::mt19937 engine_;
};

Case random_case(int seed) {
  Random random(seed);
  Case c;
  c.options.uneven = std::array{Uneven::kJoin, Uneven::kDrop, Uneven::kPad}[random.between(0, 2)];
  c.options.shard =
      std::array{Shard::kContiguous, Shard::kStrided, Shard::kFile}[random.between(0, 2)];
  c.options.shuffle = random.between(0, 3) > 0;
  c.options.seed = static_cast<std::uint64_t>(random.between(0, 1000));
  c.epoch = random.between(0, 3);
  const bool join = c.options.uneven == Uneven::kJoin, rebatch = join && random.between(0, 1) == 0;
  std::int64_t batch = random.between(1, 24), common = 1;
  const int stages = random.between(1, 5);
  for (int i = 0; i < stages; ++i) {
    const int ranks = random.between(1, 6);
    if (rebatch && i > 0) batch = random.between(1, 24);
    common = std::lcm(common, std::int64_t{ranks});
    c.stages.push_back({ranks, batch, random.between(0, 6)});
  }
  if (!join)  // a multiple of every world
    for (Stage& stage : c.stages) stage.batch = common * (batch % 3 + 1);
  const int least = join ? 1 : static_cast<int>(std::max<std::int64_t>(c.stages[0].batch, 6));
  c.options.size = random.between(least, least + 120);
  return c;
}

TEST(DividedEpoch, UsesEachSampleAsThePolicyPromises) {
  int changed = 0;
  for (int seed = 0; seed < 6000 && !testing::Test::HasFailure(); ++seed) {
    const Case c = random_case(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + describe(c));
    const auto stages = run(c);
    expect_uses(c, stages);
    if (c.options.uneven != Uneven::kJoin) expect_even(stages);
    if (c.options.shard == Shard::kFile && c.options.uneven == Uneven::kJoin) expect_parts(stages);
    EXPECT_EQ(in_order(stages), in_order(run(c)));
    changed += c.stages.size() > 1 && c.options.shard == Shard::kFile;
  }
  EXPECT_GT(changed, 1000);
}

// What a run is that was stopped and resumed by as many ranks, also where others have resumed it
// and have not done a step.
TEST(DividedEpoch, IsTheSameBitsWhereTheSameRanksContinue) {
  for (int seed = 0; seed < 2000 && !testing::Test::HasFailure(); ++seed) {
    Case whole = random_case(seed), cut = whole;
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + describe(whole));
    cut.stages.clear();
    const int others = whole.stages.back().ranks;
    for (const Stage& stage : whole.stages) {
      const std::int64_t some = stage.steps / 2;
      cut.stages.push_back({stage.ranks, stage.batch, some});
      cut.stages.push_back({others, stage.batch, 0});
      cut.stages.push_back({stage.ranks, stage.batch, stage.steps - some});
    }
    EXPECT_EQ(in_order(run(cut)), in_order(run(whole)));
  }
}

// Which samples form a step depends on the number of ranks with kFile alone.
TEST(DividedEpoch, HasTheStepsOfOneRankUnlessRanksKeepToAPart) {
  for (int seed = 0; seed < 2000 && !testing::Test::HasFailure(); ++seed) {
    Case c = random_case(seed);
    if (c.options.shard == Shard::kFile || c.options.uneven == Uneven::kPad) continue;
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + describe(c));
    Case one = c;
    for (Stage& stage : one.stages) stage.ranks = 1;
    const auto many = run(c), alone = run(one);
    for (std::size_t i = 0; i < many.size(); ++i) {
      ASSERT_EQ(many[i].size(), alone[i].size());
      for (std::size_t s = 0; s < many[i].size(); ++s)
        EXPECT_EQ(many[i][s].all(), alone[i][s].all());
    }
  }
}

// 12 samples in steps of 4: two ranks take 0, 1 and 6, 7. Of the others, three ranks take 2 and 3;
// 4, 5 and 8; 9, 10 and 11, since so many of the positions 4 to 11 count for each.
TEST(DividedEpoch, DividesWhatIsLeftInTheOrderOfTheDataSet) {
  const Case c{.options = {.size = 12, .shuffle = false, .shard = Shard::kFile},
               .stages = {{2, 4, 1}, {3, 4, 2}}};
  const auto stages = run(c);
  EXPECT_EQ(stages[0][0].ranks, (std::vector<Indices>{{0, 1}, {6, 7}}));
  ASSERT_EQ(stages[1].size(), 2u);
  EXPECT_EQ(stages[1][0].ranks, (std::vector<Indices>{{2}, {4, 5}, {9}}));
  EXPECT_EQ(stages[1][1].ranks, (std::vector<Indices>{{3}, {8}, {10, 11}}));
}

TEST(DividedEpoch, HasNoStepsBeforeItsLastDivision) {
  Sampler sampler({.size = 20, .global_batch = 4, .world_size = 3, .shard = Shard::kFile});
  const std::vector<Division> divisions{{0, 2}, {8, 3}};
  sampler.set_epoch(0, divisions);
  EXPECT_THROW(static_cast<void>(sampler.indices(1)), std::out_of_range);
  EXPECT_NO_THROW(static_cast<void>(sampler.indices(2)));
  sampler.set_epoch(1);
  EXPECT_NO_THROW(static_cast<void>(sampler.indices(0)));
}

// A rank that has no sample left repeats from its part of the data set.
TEST(DividedEpoch, IsPaddedWhereFewerSamplesThanRanksAreLeft) {
  const Case c{.options = {.size = 13, .uneven = Uneven::kPad, .shard = Shard::kFile},
               .stages = {{1, 12, 1}, {3, 12, 1}}};
  const auto stages = run(c);
  ASSERT_EQ(stages[1].size(), 1u);
  expect_uses(c, stages);
  expect_even(stages);
}

}  // namespace
}  // namespace io
