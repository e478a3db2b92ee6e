// Choosing a data set by name, synthetic data, limits.
#include "io/data/sources/dataset_registry.h"

#include <gtest/gtest.h>

#include "io/base/files/io_error.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"

namespace io {
namespace {

DatasetOptions synthetic(std::int64_t size, std::uint64_t seed = 0) {
  DatasetOptions options;
  options.name = "synthetic";
  options.synthetic.shape = {5, 4, 3};
  options.synthetic.classes = 7;
  options.synthetic.size = size;
  options.seed = seed;
  return options;
}

std::string refusal(const DatasetOptions& options) {
  return test_support::error_or<ConfigError>([&] { load_dataset(options); }, "accepted");
}

TEST(LoadDataset, UnknownNameSuggestsTheNearest) {
  DatasetOptions options;
  options.name = "minst";
  const std::string text = refusal(options);
  EXPECT_CONTAINS(text, "did you mean 'mnist'?");
  EXPECT_CONTAINS(text, "cifar10");
}

TEST(LoadDataset, LimitCutsTrainingOnlyAndKeepsTheNormalisation) {
  DatasetOptions options = synthetic(1000);
  const DatasetSplits whole = load_dataset(options);
  options.limit = 10;
  const DatasetSplits few = load_dataset(options);
  EXPECT_EQ(few.train.size(), 10);
  EXPECT_EQ(few.train.as<ImageSamples>().pixels.size(), 600u);
  EXPECT_EQ(few.test.size(), whole.test.size());
  EXPECT_EQ(few.train.as<ImageSamples>().format.mean, whole.train.as<ImageSamples>().format.mean);
  EXPECT_EQ(few.test.as<ImageSamples>().format.deviation,
            whole.train.as<ImageSamples>().format.deviation);
  EXPECT_TRUE(few.warnings.empty());
  options.limit = 2000;
  const DatasetSplits all = load_dataset(options);
  EXPECT_EQ(all.train.size(), 1000);
  EXPECT_LINES(all.warnings, "limit 2000 training samples 1000");
  options.limit = -1;
  EXPECT_NE(refusal(options), "accepted");
}

TEST(Synthetic, IsRandomSeededAndOfTheShapeAskedFor) {
  const DatasetSplits first = load_dataset(synthetic(2000, 3)),
                      again = load_dataset(synthetic(2000, 3));
  const DatasetSplits other = load_dataset(synthetic(2000, 4));
  EXPECT_EQ(first.train.as<ImageSamples>().pixels, again.train.as<ImageSamples>().pixels);
  EXPECT_EQ(first.train.as<ClassLabels>().ids, again.train.as<ClassLabels>().ids);
  EXPECT_NE(first.train.as<ImageSamples>().pixels, other.train.as<ImageSamples>().pixels);
  EXPECT_EQ(first.train.sample_count(), 60);
  EXPECT_EQ(first.test.size(), 200);
  EXPECT_NE(std::vector(first.train.as<ClassLabels>().ids.begin(),
                        first.train.as<ClassLabels>().ids.begin() + 200),
            first.test.as<ClassLabels>().ids);
  std::vector<int> counts(7);
  for (const std::int32_t label : first.train.as<ClassLabels>().ids)
    ++counts.at(static_cast<std::size_t>(label));
  for (const int count : counts) EXPECT_NEAR(count, 2000. / 7, 80);
  for (const float mean : first.train.as<ImageSamples>().format.mean) EXPECT_NEAR(mean, 0.5, 0.01);
  for (const float deviation : first.train.as<ImageSamples>().format.deviation)
    EXPECT_NEAR(deviation, 0.2898, 0.005);
}

TEST(Synthetic, TextsAreOfTokensBelowTheNumberOfClasses) {
  DatasetOptions options = synthetic(500, 3);
  options.synthetic.context = 16;
  const DatasetSplits first = load_dataset(options), again = load_dataset(options);
  ASSERT_NE(first.train.find<TokenSamples>(), nullptr);
  EXPECT_EQ(first.train.size(), 500);
  EXPECT_EQ(first.test.size(), 50);
  EXPECT_EQ(first.train.positions(), 16);
  EXPECT_EQ(first.train.classes(), 7);
  EXPECT_EQ(first.train.as<TokenSamples>().tokens.all(),
            again.train.as<TokenSamples>().tokens.all());
  std::vector<int> counts(7);
  for (const std::int32_t token : first.train.as<TokenSamples>().tokens.all())
    ++counts.at(static_cast<std::size_t>(token));
  for (const int count : counts) EXPECT_NEAR(count, 8000. / 7, 160);
  options.seed = 4;
  EXPECT_NE(load_dataset(options).train.as<TokenSamples>().tokens.all(),
            first.train.as<TokenSamples>().tokens.all());
  options.synthetic.context = std::int64_t{1} << 40;
  EXPECT_NE(refusal(options), "accepted");
}

TEST(Synthetic, ImpossibleShapesAreRefused) {
  DatasetOptions options = synthetic(100);
  options.synthetic.shape = {0, 4, 3};
  EXPECT_NE(refusal(options), "accepted");
  options.synthetic.shape = {std::int64_t{1} << 40, std::int64_t{1} << 40,
                             3};  // the product overflows
  EXPECT_NE(refusal(options), "accepted");
  options = synthetic(0);
  EXPECT_NE(refusal(options), "accepted");
  options = synthetic(100);
  options.synthetic.classes = 0;
  EXPECT_NE(refusal(options), "accepted");
}

// Checkpoints of earlier builds have these digests.
TEST(DataDigest, StaysTheSame) {
  DatasetOptions options;
  options.name = "glyphs";
  options.seed = 3;
  options.limit = 200;
  EXPECT_EQ(data_digest(load_dataset(options).train).text, "f6d15615a95943162b1e3384c6a2946c");
  options = synthetic(100, 3);
  options.synthetic.shape = {28, 28, 1};
  options.synthetic.classes = 10;
  EXPECT_EQ(data_digest(load_dataset(options).train).text, "125bdd6cd49e9e425840a68c877254f3");
}

TEST(DataDigest, ChangesWithEveryPartOfEveryKind) {
  const Dataset rows{.name = "rows",
                     .samples = FeatureSamples{.extents = {1, 1, 1}, .values = {1, 2}},
                     .labels = TargetValues{.scale = {.name = "y", .mean = 1}, .values = {3, 4}}};
  const Dataset text{.name = "text",
                     .samples = TokenSamples{.context = 1, .tokens = {{0, 1, 0}}},
                     .labels = NextTokens{.count = 2, .vocabulary = "ab"}};
  const auto changed = [](Dataset set, const auto& change) {
    const std::string before = data_digest(set).text;
    change(set);
    return data_digest(set).text != before;
  };
  EXPECT_TRUE(changed(rows, [](auto& set) { set.template as<FeatureSamples>().values[1] = 3; }));
  EXPECT_TRUE(changed(rows, [](auto& set) { set.template as<TargetValues>().values[1] = 5; }));
  EXPECT_TRUE(changed(rows, [](auto& set) { set.template as<TargetValues>().scale.mean = 2; }));
  EXPECT_TRUE(changed(rows, [](auto& set) { set.template as<TargetValues>().scale.name = "z"; }));
  EXPECT_TRUE(changed(text, [](auto& set) {
    set.template as<TokenSamples>().tokens = {{0, 1, 1}};
  }));
  EXPECT_TRUE(changed(text, [](auto& set) { set.template as<NextTokens>().vocabulary = "ac"; }));
  EXPECT_TRUE(changed(text, [](auto& set) { set.template as<NextTokens>().count = 3; }));
  EXPECT_FALSE(changed(text, [](auto& set) { set.name = "other"; }));
  const Dataset maps{.name = "arrays",
                     .samples = ArraySamples{.extents = {1, 2, 1}, .values = {1, 2}},
                     .labels = PositionLabels{.extents = {1, 2}, .ids = {0, 1}, .count = 2}};
  EXPECT_TRUE(changed(maps, [](auto& set) { set.template as<ArraySamples>().values[1] = 3; }));
  EXPECT_TRUE(changed(maps, [](auto& set) { set.template as<PositionLabels>().ids[1] = 0; }));
  EXPECT_TRUE(changed(maps, [](auto& set) { set.template as<PositionLabels>().extents = {2}; }));
}

TEST(Samples, AreNamedAsCheckpointsStateThem) {
  const auto tokens = samples_named("tokens");
  ASSERT_TRUE(tokens);
  EXPECT_TRUE(std::holds_alternative<TokenSamples>(*tokens));
  EXPECT_FALSE(samples_named("sounds"));
  EXPECT_EQ(sample_names(), "images, features, tokens or arrays");
}

TEST(Dataset, KeepsTheTargetsOfTheSamplesThatItKeeps) {
  Dataset set{.name = "rows",
              .samples = FeatureSamples{.extents = {1, 1, 2}, .values = {0, 1, 2, 3, 4, 5}},
              .labels = TargetValues{.scale = {}, .values = {10, 11, 12}}};
  set.keep({0, 2});
  EXPECT_EQ(set.as<FeatureSamples>().values, (std::vector<float>{0, 1, 4, 5}));
  EXPECT_EQ(set.as<TargetValues>().values, (std::vector<float>{10, 12}));
  const Dataset like = set.like();
  EXPECT_EQ(like.size(), 0);
  EXPECT_EQ(like.shape(), set.shape());
  set.limit(1, 7);
  EXPECT_EQ(set.size(), 1);
}

}  // namespace
}  // namespace io
