// What ranks must have in common before the first step, with threads as ranks.
#include "tools/run/choices/agreement.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <thread>

#include "engine/core/error.h"
#include "engine/train/replicas/replica_sync.h"
#include "io/base/files/io_error.h"
#include "tests/support/expect_contains.h"
#include "tests/support/time_limits.h"
#include "tools/launch/workers/worker_threads.h"
#include "tools/report/output/exit_codes.h"
#include "tools/run/data/session_data.h"

namespace {

using backends::Communicator;
using backends::Group;

struct Outcome {
  int code = 0;
  std::string text;
};

// What `body` ends with on each rank; ranks that fail leave without goodbye, as in the program.
std::vector<Outcome> outcomes(int ranks,
                              const std::function<void(Group& group, Communicator&)>& body) {
  std::vector<Outcome> all(static_cast<std::size_t>(ranks));
  auto groups = backends::make_inproc_groups(ranks, test_support::deadline_ms(20'000));
  std::vector<std::thread> threads;
  threads.reserve(all.size());
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const auto group = std::move(groups[static_cast<std::size_t>(rank)]);
      try {
        const auto control = group->make_communicator();
        body(*group, *control);
        group->leave();
      } catch (const std::exception& error) {
        all[static_cast<std::size_t>(rank)] = {tools::exit_code_of(error), error.what()};
      }
    });
  for (std::thread& thread : threads) thread.join();
  return all;
}

TEST(RunOnAllRanks, AllGoOnWhereAllCould) {
  for (const Outcome& outcome : outcomes(3, [](Group&group, Communicator&control) {
         bool done = false;
         tools::run_on_all_ranks(group, control, [&] { done = true; });
         EXPECT_TRUE(done);
       }))
    EXPECT_EQ(outcome.text, "");
}

TEST(RunOnAllRanks, TheLowestRankThatFailedIsTheReasonOfThoseThatDidNot) {
  const auto all = outcomes(4, [](Group& group, Communicator& control) {
    tools::run_on_all_ranks(group, control, [&] {
      if (group.rank() == 1) throw io::DataError("bad file");
      if (group.rank() == 3) throw io::ConfigError("bad option");
    });
  });
  EXPECT_EQ(all[1].text, "bad file");
  EXPECT_EQ(all[3].text, "bad option");
  EXPECT_EQ(all[3].code, tools::kExitConfiguration);
  for (const std::size_t rank : {0u, 2u}) {
    EXPECT_EQ(all[rank].code, tools::kExitBadData);
    EXPECT_EQ(all[rank].text.find("rank 1 (host "), 0u) << all[rank].text;
    EXPECT_CONTAINS(all[rank].text, "): bad file");
  }
}

TEST(RunOnAllRanks, ADifferenceIsNamedWithBothValuesOnEveryRank) {
  const auto all = outcomes(4, [](Group& group, Communicator& control) {
    tools::require_equal(group, control,
                         {{"samples", "40"}, {"classes", group.rank() >= 2 ? "9" : "10"}},
                         "the ranks differ");
  });
  for (const Outcome& outcome : all) {
    EXPECT_EQ(outcome.code, tools::kExitMismatch);
    EXPECT_EQ(outcome.text.find("the ranks differ: classes: rank 0 (host "), 0u) << outcome.text;
    EXPECT_CONTAINS(outcome.text, ") has 10, rank 2 (host ");
    EXPECT_CONTAINS(outcome.text, ") has 9");
  }
}

// Two ranks of which the second has `data` changed so: all name `name` as what differs.
void expect_reported(const io::DatasetSplits& data, const std::string& name,
                     const std::function<void(io::DatasetSplits&)>& change) {
  const auto all = outcomes(2, [&](Group& group, Communicator& control) {
    io::DatasetSplits own = data;
    if (group.rank() == 1) change(own);
    tools::require_equal(group, control, tools::extent_of(own), "data");
    tools::require_equal(group, control, tools::content_of(own, io::data_digest(own.train).text),
                         "data");
  });
  for (const Outcome& outcome : all)
    EXPECT_EQ(outcome.text.find("data: " + name + ": rank 0 "), 0u) << outcome.text;
}

io::ImageSamples& images(io::Dataset& set) { return set.as<io::ImageSamples>(); }
io::ClassLabels& classes(io::Dataset& set) { return set.as<io::ClassLabels>(); }

TEST(RunOnAllRanks, EveryPartOfADataSetCounts) {
  io::DatasetSplits data;
  data.train = {
      .samples =
          io::ImageSamples{.format = {.shape = {1, 2, 1}, .mean = {0.5F}, .deviation = {0.2F}},
                           .pixels = {1, 2, 3, 4}},
      .labels = io::ClassLabels{.ids = {0, 1}, .count = 2}};
  data.test = data.train;
  const std::map<std::string, std::function<void(io::DatasetSplits&)>> changes{
      {"training labels",
       [](auto& d) { std::swap(classes(d.train).ids[0], classes(d.train).ids[1]); }},
      {"training data", [](auto& d) { images(d.train).pixels[3] = 5; }},
      {"mean and deviation", [](auto& d) { images(d.train).format.mean[0] = 0.6F; }},
      {"test labels", [](auto& d) { classes(d.test).ids[0] = 1; }},
      {"test data", [](auto& d) { images(d.test).pixels[0] = 9; }},
      {"classes", [](auto& d) { classes(d.train).count = 3; }}};
  for (const auto& [name, change] : changes) expect_reported(data, name, change);
}

TEST(RunOnAllRanks, TheCharactersOfATextCount) {
  io::DatasetSplits data;
  data.train = {.samples = io::TokenSamples{.context = 1, .tokens = {{0, 1, 0}}},
                .labels = io::NextTokens{.count = 2, .vocabulary = "ab"}};
  data.test = data.train;
  expect_reported(data, "vocabulary", [](io::DatasetSplits& d) {
    d.train.labels = io::NextTokens{.count = 2, .vocabulary = "ac"};
  });
  expect_reported(data, "training data", [](io::DatasetSplits& d) {
    d.train.as<io::TokenSamples>().tokens = {{0, 1, 1}};
  });
}

TEST(RunOnAllRanks, ThreadsThatLoadedDataOfOtherLengthEndAtOnce) {
  const auto all = outcomes(2, [](Group& group, Communicator& control) {
    tools::DataOptions options;
    options.set.name = "synthetic";
    options.set.synthetic.size = group.rank() == 0 ? 40 : 44;
    options.sampling.global_batch = 4;
    tools::SessionData(options, 1, group, control);
  });
  for (const Outcome& outcome : all) {
    EXPECT_EQ(outcome.code, tools::kExitMismatch);
    EXPECT_CONTAINS(outcome.text, ") has 40, rank 1 (host ");
  }
}

}  // namespace
