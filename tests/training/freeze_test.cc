// --freeze and --lr-group in whole trainings: what stays as it is, what moves how fast, and that
// both are the same for any number of ranks.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/expect_contains.h"
#include "tests/training/exact_support.h"
#include "tests/training/session_runner.h"

namespace {

using exact_support::expect_in_sync;
using exact_support::kConv;
using exact_support::kExact;
using exact_support::refusal;
using session_runner::distance;
using session_runner::Options;
using session_runner::RankResult;
using session_runner::same_bits;
using session_runner::train;
using session_runner::with;

// Names of the arrays that differ, in model order.
std::vector<std::string> changed(const RankResult& a, const RankResult& b) {
  std::vector<std::string> names;
  EXPECT_EQ(a.state.size(), b.state.size());
  for (std::size_t i = 0; i < std::min(a.state.size(), b.state.size()); ++i)
    if (a.state[i].data != b.state[i].data) names.push_back(a.state[i].name);
  return names;
}

using Names = std::vector<std::string>;

const Options kThreeSteps = with(kExact, "epochs= steps=3");
const Options kSevenSteps = with(kExact, "epochs= steps=7");

TEST(Freeze, LeavesWhatItNamesAndTrainsTheRest) {
  const Options first = "freeze=layers.0.*", middle{{"freeze", "layers.1.*"}},
                bias{{"freeze", "*.bias"}};
  const auto after = [](const Options& base, const Options& more) {
    return train(1, with(base, more))[0];
  };
  EXPECT_EQ(changed(after(kThreeSteps, first), after(kSevenSteps, first)),
            (Names{"layers.1.weight", "layers.1.bias", "layers.2.weight", "layers.2.bias"}));
  EXPECT_EQ(changed(after(kThreeSteps, middle), after(kSevenSteps, middle)),
            (Names{"layers.0.weight", "layers.0.bias", "layers.2.weight", "layers.2.bias"}));
  EXPECT_EQ(changed(after(kThreeSteps, bias), after(kSevenSteps, bias)),
            (Names{"layers.0.weight", "layers.1.weight", "layers.2.weight"}));
}

// The first step's gradients do not depend on what is frozen.
TEST(Freeze, ChangesNothingOfTheOtherUpdates) {
  for (const Options& more :
       {Options{}, Options("grad-accum=3"), Options("optimizer=adamw momentum="),
        Options("optimizer=lion momentum="), Options("ema=0.9")}) {
    const Options one = with(kExact, "epochs= steps=1", more);
    const auto whole = train(1, one);
    for (const char* name : {"layers.0", "layers.1", "layers.2"}) {
      const auto frozen = train(1, with(one, std::string("freeze=") + std::string(name) + ".*"));
      EXPECT_EQ(changed(whole[0], frozen[0]),
                (Names{std::string(name) + ".weight", std::string(name) + ".bias"}));
    }
  }
}

TEST(Freeze, StatisticsOfFrozenLayersStay) {
  const Options few = with(kConv, "epochs= steps=2"), more = with(kConv, "epochs= steps=4");
  const auto moved = [&](const Options& freeze) {
    return changed(train(1, with(few, freeze))[0], train(1, with(more, freeze))[0]);
  };
  const Names second{"layer2.0.weight",
                     "layer2.0.bias",
                     "layer2.1.weight",
                     "layer2.1.bias",
                     "layer2.1.running_mean",
                     "layer2.1.running_var",
                     "layer2.1.num_batches_tracked",
                     "fc.weight",
                     "fc.bias"};
  EXPECT_EQ(moved("freeze=layer1.*"), second);
  EXPECT_EQ(moved("freeze=layer?.*"), (Names{"fc.weight", "fc.bias"}));
  // Behind layers that are trained, too.
  const Names found = moved("freeze=layer2.*");
  for (const char* name :
       {"layer1.0.weight", "layer1.1.weight", "layer1.1.running_mean", "fc.weight"})
    EXPECT_EQ(std::ranges::count(found, name), 1) << name;
  for (const std::string& name : found) EXPECT_FALSE(name.starts_with("layer2.")) << name;
  // Half of a layer is not all of it.
  EXPECT_EQ(std::ranges::count(moved("freeze=layer2.1.bias"), "layer2.1.running_mean"), 1);
}

TEST(Freeze, IsTheSameForAnyNumberOfRanks) {
  for (const char* names : {"layer1.*", "layer2.*", "layer?.*", "*.bias"}) {
    const Options options =
        with(kConv, std::string("freeze=") + names + " batch-size=13 sync-bn=true");
    const auto one = train(1, options);
    for (const int world : {2, 3}) {
      const auto many = train(world, options);
      EXPECT_LT(distance(one[0], many[0]), 1e-12) << names << " on " << world;
      expect_in_sync(many);
    }
  }
  for (const Options& options : {Options("freeze=layers.1.*"), with(kConv, "freeze=layer1.*")}) {
    const Options canonical = with(options, "reduction-order=canonical");
    const auto one = train(1, canonical), three = train(3, canonical);
    EXPECT_TRUE(same_bits(one[0], three[0], io::Section::kParameter));
    EXPECT_TRUE(same_bits(one[0], three[0], io::Section::kBuffer));
  }
}

// A mean of three equal numbers may be rounded.
TEST(Freeze, NoAveragingTouchesWhatIsFrozen) {
  const Options base = "freeze=layers.0.* steps=6 batch-size=13";
  const auto alone = train(1, base);
  for (const Options& more :
       {Options{}, Options("sync=params sync-every=2"),
        Options("sync=params sync-every=2 average-state=all"), Options("sync=diloco sync-every=2"),
        Options("sync=gossip sync-every=2"), Options("sync=gossip sync-every=2 outer-momentum=0.5"),
        Options("sync=diloco sync-every=2 stale=1"), Options("sync=params sync-every=2 stale=1"),
        Options("sync=slowmo sync-every=2"), Options("sync=post-local sync-every=2 sync-warmup=3"),
        Options("compress=topk"), Options("compress=powersgd"), Options("compress=bf16"),
        Options("compress=int8"), Options("compress=sparse"),
        Options("compress=int4 sync=params sync-every=2"),
        Options("compress=sparse sync=diloco sync-every=2")}) {
    const auto many = train(3, with(base, more));
    expect_in_sync(many);
    const Names names = changed(alone[0], many[0]);
    EXPECT_EQ(std::ranges::count(names, "layers.0.weight"), 0) << many[0].coverage;
    EXPECT_EQ(std::ranges::count(names, "layers.0.bias"), 0) << many[0].coverage;
    EXPECT_EQ(std::ranges::count(names, "layers.1.weight"), 1) << many[0].coverage;
  }
}

TEST(Freeze, SendsOnlyWhatIsTrained) {
  const Options base = "steps=2";
  const auto all = train(2, base), last = train(2, with(base, "freeze=layers.0.*,layers.1.*"));
  EXPECT_LT(last[0].bytes_sent, all[0].bytes_sent / 10);
}

TEST(Freeze, RefusesWhatCannotBeDone) {
  EXPECT_CONTAINS(refusal(1, "freeze=layer.0.*"), "'layer.0.*' matches none of the 6");
  EXPECT_CONTAINS(refusal(1, "freeze=*"), "nothing is left to train");
  EXPECT_CONTAINS(refusal(1, "freeze=layers.0.* optimizer=muon"), "sgd, adamw or lion");
  EXPECT_CONTAINS(refusal(2, "freeze=layers.0.* buffers=average"), "--buffers local");
  EXPECT_CONTAINS(refusal(1, "lr-group=fc=0x"), "with a factor above 0");
  EXPECT_CONTAINS(refusal(1, "lr-group=fc.*=2x"), "'fc.*' matches none");
}

// One step: the gradients are the same, whatever the rates.
TEST(LrGroup, MultipliesTheRateOfWhatItNames) {
  for (const Options& more : {Options{}, Options("optimizer=adamw momentum= clip-grad=0.1"),
                              Options("optimizer=lion momentum=")}) {
    const Options one = with(kExact, "epochs= steps=1 lr=0.5", more);
    const auto slow = train(1, one), fast = train(1, with(one, "lr=2")),
               group = train(1, with(one, "lr-group=layers.1.*=4x,layers.*=1x"));
    const Names second{"layers.1.weight", "layers.1.bias"},
        others{"layers.0.weight", "layers.0.bias", "layers.2.weight", "layers.2.bias"};
    EXPECT_EQ(changed(slow[0], group[0]), second);
    EXPECT_EQ(changed(fast[0], group[0]), others);
  }
}

TEST(LrGroup, OfEverythingIsTheRate) {
  const auto whole = train(2, "steps=5 lr=0.25"), group = train(2, "steps=5 lr=0.125 lr-group=*=2");
  EXPECT_EQ(changed(whole[0], group[0]), Names{});
}

// One step: the gradients are the same, whatever decays.
TEST(NoDecay, LeavesOutWhatItNames) {
  const Names weights{"layers.0.weight", "layers.1.weight", "layers.2.weight"},
      biases{"layers.0.bias", "layers.1.bias", "layers.2.bias"}, second{"layers.1.weight"};
  for (const Options& more :
       {Options{}, Options("optimizer=adamw momentum="), Options("optimizer=lion momentum=")}) {
    // Biases begin at numbers other than 0, so that decay changes them.
    const Options one = with(kExact, "epochs= steps=1 lr=0.5 weight-decay=0.25", more);
    const auto all = train(1, one), none = train(1, with(one, "weight-decay=0")),
               kind = train(1, with(one, "no-decay=norms,biases")),
               pattern = train(1, with(one, "no-decay=layers.0.*,layers.2.*,*.bias"));
    EXPECT_EQ(changed(all[0], kind[0]), biases);
    EXPECT_EQ(changed(none[0], kind[0]), weights);
    EXPECT_EQ(changed(none[0], pattern[0]), second);
  }
}

TEST(NoDecay, KnowsNorms) {
  const Options one = with(kConv, "epochs= steps=1 weight-decay=0.25");
  // Their biases begin at 0, which does not decay.
  EXPECT_EQ(changed(train(1, one)[0], train(1, with(one, "no-decay=norms"))[0]),
            (Names{"layer1.1.weight", "layer2.1.weight"}));
  EXPECT_EQ(changed(train(1, with(one, "no-decay=*"))[0], train(1, with(one, "weight-decay=0"))[0]),
            Names{});
}

TEST(NoDecay, IsTheSameForAnyNumberOfRanks) {
  const Options base = with(kExact,
                            "epochs= steps=5 weight-decay=0.25 no-decay=biases "
                            "reduction-order=canonical");
  EXPECT_EQ(changed(train(1, base)[0], train(2, base)[0]), Names{});
}

TEST(NoDecay, RefusesWhatMatchesNothing) {
  EXPECT_CONTAINS(refusal(1, "no-decay=norm weight-decay=0.1"), "'norm' matches none of the 6");
  EXPECT_CONTAINS(refusal(1, "no-decay=biases optimizer=muon weight-decay=0.1"),
                  "sgd, adamw or lion");
  EXPECT_CONTAINS(refusal(1, "no-decay=biases"), "--weight-decay above 0");
}

}  // namespace
