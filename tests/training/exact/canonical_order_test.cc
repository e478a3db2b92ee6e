// --reduction-order canonical: the same bits for any world and any number of threads.
#include <gtest/gtest.h>

#include "tests/engine/graph/graph_harness.h"
#include "tests/support/expect_contains.h"
#include "tests/training/exact_support.h"

namespace {

using namespace exact_support;

class Canonical : public testing::TestWithParam<Options> {};

TEST_P(Canonical, AnyWorldAndAnyThreadsAreTheSameBits) {
  const Options options =
      with("reduction-order=canonical batch-size=21 epochs=1 clip-grad=1 eval-every=1", GetParam());
  const auto one = train(1, options);
  for (int world = 2; world <= 8; ++world) {
    SCOPED_TRACE(world);
    const auto many =
        train(world, with(options, std::string("threads=") + (world == 2 ? "2" : "1")));
    for (const RankResult& rank : many) {
      EXPECT_TRUE(same_bits(one[0], rank, io::Section::kParameter));
      EXPECT_TRUE(same_bits(one[0], rank, kBuffers));  // of the first shard, or of all
    }
    EXPECT_EQ(one[0].losses, many[0].losses);
    if (world != 2) {  // evaluation is the same for the same number of threads
      EXPECT_EQ(one[0].last_eval.loss, many[0].last_eval.loss);
    }
  }
  EXPECT_TRUE(same_bits(one[0], train(1, with(options, "threads=3"))[0], io::Section::kParameter));
}

INSTANTIATE_TEST_SUITE_P(
    Models, Canonical,
    testing::Values(Options{}, Options("optimizer=adamw lr=0.001"),
                    Options("optimizer=lion lr=0.001"),
                    with(kSmallMlp, "optimizer=muon clip-grad=0.5"), Options("dtype=f64"),
                    Options("model=convnet synthetic-shape=8x8x1"),
                    Options("model=convnet synthetic-shape=8x8x1 sync-bn=true"),
                    Options("model=convnet synthetic-shape=8x8x1 sync-bn=true grad-accum=2"),
                    // 11 samples in steps of 4: most shards have one sample or none
                    Options("model=convnet synthetic-shape=8x8x1 synthetic-size=11 batch-size=4")));

// Tied weights, attention, dropout, residual blocks.
TEST(CanonicalOrder, HoldsForTextAndForResidualNetworks) {
  const test_support::TemporaryDirectory folder;
  write_some_text(folder / "input.txt");
  const Options canonical = "reduction-order=canonical steps=3 batch-size=11";
  const Options gpt = "model=gpt-nano dropout=0.2 dataset=text data-dir=" + folder.path().string() +
                      " context=12 optimizer=adamw lr=0.001";
  const Options resnet = "model=resnet20-cifar synthetic-shape=8x8x3 sync-bn=true";
  const Options llama =
      "model=" + test_support::source_directory() +
      "/models/examples/llama.toml dataset=text data-dir=" + folder.path().string() +
      " context=12 optimizer=adamw lr=0.001";
  for (const Options& model : {gpt, llama, resnet}) {
    SCOPED_TRACE(model.at("model"));
    const auto one = train(1, with(canonical, with(model, "threads=2")));
    for (const int world : {3, 4, 7}) {
      const auto many = train(world, with(canonical, model));
      EXPECT_TRUE(same_bits(one[0], many[0], io::Section::kParameter)) << world;
      EXPECT_EQ(one[0].losses, many[0].losses) << world;
      expect_in_sync(many);
    }
  }
}

// Why it is needed: the plain order rounds differently for each world.
TEST(CanonicalOrder, IsNotWhatTheFastOrderGives) {
  EXPECT_FALSE(same_bits(train(1, {})[0], train(4, {})[0], io::Section::kParameter));
}

TEST(CanonicalOrder, IsTheSameMathematics) {
  const Options options = with(kExact, "batch-size=13");
  EXPECT_LT(distance(train(1, options)[0], train(2, with(options, "reduction-order=canonical"))[0]),
            1e-12);
  const Options bn = with(kConv, "batch-size=13 sync-bn=true");
  const auto one = train(1, bn), two = train(2, with(bn, "reduction-order=canonical"));
  EXPECT_LT(distance(one[0], two[0]), 1e-12);
  EXPECT_LT(distance(one[0], two[0], kBuffers), 1e-12);
}

// Without --sync-bn a shard has the statistics of its own samples, as a rank of a world of eight
// has.
TEST(CanonicalOrder, PlainBatchNormIsThatOfAsManyRanksAsShards) {
  const Options options = with(kConv, "batch-size=16 synthetic-size=64");
  const auto ranks = train(8, options), one = train(1, with(options, "reduction-order=canonical"));
  EXPECT_LT(distance(ranks[0], one[0]), 1e-12);
  EXPECT_LT(distance(ranks[0], one[0], kBuffers), 1e-12);
}

TEST(CanonicalOrder, ResumesInAnotherWorldInTheMiddleOfAnEpoch) {
  const test_support::TemporaryDirectory folder;
  const Options options =
      "reduction-order=canonical momentum=0.9 model=convnet synthetic-shape=8x8x1";
  const Options saved = with(options, "save-dir=" + folder.path().string());
  train(3, with(saved, "steps=3"));
  const auto resumed = train(5, with(saved, "steps=7 resume=auto"));
  const auto whole = train(1, with(options, "steps=7"));
  for (const RankResult& rank : resumed) {
    EXPECT_TRUE(same_bits(whole[0], rank, io::Section::kParameter));
    EXPECT_TRUE(same_bits(whole[0], rank, kBuffers));
  }
  EXPECT_EQ(std::vector(whole[0].losses.begin() + 3, whole[0].losses.end()), resumed[0].losses);
}

// What differs says how many ranks there were: their number, and what averaging over them took.
TEST(CanonicalOrder, CheckpointsDoNotDependOnTheWorld) {
  const Options options =
      "reduction-order=canonical momentum=0.9 ema=0.9 model=convnet steps=4 "
      "synthetic-shape=8x8x1";
  const auto saved_by = [&](int world) {
    const test_support::TemporaryDirectory folder;
    const auto ranks = train(world, with(options, "save-dir=" + folder.path().string()));
    io::Checkpoint checkpoint = io::load_checkpoint(ranks[0].saved.back());
    std::erase_if(checkpoint.counters,
                  [](const auto& counter) { return counter.first.starts_with("averaging."); });
    return checkpoint;
  };
  const io::Checkpoint one = saved_by(1);
  for (const int world : {2, 3, 5, 6, 7}) {
    SCOPED_TRACE(world);
    const io::Checkpoint many = saved_by(world);
    EXPECT_EQ(many.world_size, world);
    EXPECT_EQ(many.counters, one.counters);
    ASSERT_EQ(many.arrays.size(), one.arrays.size()) << "a rank has a state of its own";
    for (std::size_t i = 0; i < one.arrays.size(); ++i) {
      EXPECT_EQ(many.arrays[i].name, one.arrays[i].name);
      EXPECT_TRUE(many.arrays[i].data == one.arrays[i].data) << one.arrays[i].name;
    }
  }
}

// A rank that shall go on in rank 0's place has the statistics of the first shard, too.
TEST(CanonicalOrder, EveryStepLeavesEqualStatisticsOnAllRanks) {
  const Options options =
      "reduction-order=canonical model=convnet synthetic-shape=8x8x1 steps=4 "
      "verify-every=1";
  std::vector<std::vector<std::vector<double>>> seen(3);  // by rank and step
  const auto ranks = train(3, options, [&](int rank, engine::TrainState& state) {
    seen[static_cast<std::size_t>(rank)].push_back(test_support::to_doubles(state.model.running));
  });
  ASSERT_EQ(seen[0].size(), 4u);
  EXPECT_NE(seen[0][0], seen[0][1]);
  EXPECT_EQ(seen[1], seen[0]);
  EXPECT_EQ(seen[2], seen[0]);
  EXPECT_TRUE(ranks[0].desyncs.empty());
}

TEST(CanonicalOrder, RefusesWhatItCannotKeep) {
  const Options canonical = "reduction-order=canonical";
  EXPECT_VALUES(refusal(3, with(canonical, "reduction-shards=2")),
                "2 shards 3 ranks --reduction-shards 4");
  EXPECT_CONTAINS(refusal(1, with(canonical, "reduction-shards=6")), "a power of two");
  EXPECT_CONTAINS(refusal(1, with(canonical, "buffers=average")), "local or rank0");
  EXPECT_CONTAINS(refusal(2, with(canonical, "shard=strided")), "--shard contiguous");
  EXPECT_CONTAINS(refusal(2, with(canonical, "sync=params")), "requires --sync grad");
}

}  // namespace
