// Choosing a data set by name, synthetic data, limits.
#include "io/data/sources/dataset.h"

#include <gtest/gtest.h>

#include "io/base/files/io_error.h"

namespace io {
namespace {

DatasetOptions synthetic(std::int64_t size, std::uint64_t seed = 0) {
  DatasetOptions options;
  options.name = "synthetic";
  options.synthetic_shape = {5, 4, 3};
  options.synthetic_classes = 7;
  options.synthetic_size = size;
  options.seed = seed;
  return options;
}

std::string refusal(const DatasetOptions& options) {
  try {
    load_dataset(options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(LoadDataset, UnknownNameSuggestsTheNearest) {
  DatasetOptions options;
  options.name = "minst";
  const std::string text = refusal(options);
  EXPECT_NE(text.find("did you mean 'mnist'?"), std::string::npos) << text;
  EXPECT_NE(text.find("cifar10"), std::string::npos) << text;
}

TEST(LoadDataset, LimitCutsTrainingOnlyAndKeepsTheNormalisation) {
  DatasetOptions options = synthetic(1000);
  const DatasetSplits whole = load_dataset(options);
  options.limit = 10;
  const DatasetSplits few = load_dataset(options);
  EXPECT_EQ(few.train.size(), 10);
  EXPECT_EQ(few.train.samples.size(), 600u);
  EXPECT_EQ(few.test.size(), whole.test.size());
  EXPECT_EQ(few.train.mean, whole.train.mean);
  EXPECT_EQ(few.test.deviation, whole.train.deviation);
  EXPECT_TRUE(few.warnings.empty());
  options.limit = 2000;
  const DatasetSplits all = load_dataset(options);
  EXPECT_EQ(all.train.size(), 1000);
  EXPECT_EQ(all.warnings, std::vector<std::string>{"the limit of 2000 training samples changes "
                                                   "nothing: there are 1000"});
  options.limit = -1;
  EXPECT_NE(refusal(options), "accepted");
}

TEST(Synthetic, IsRandomSeededAndOfTheShapeAskedFor) {
  const DatasetSplits first = load_dataset(synthetic(2000, 3)),
                      again = load_dataset(synthetic(2000, 3));
  const DatasetSplits other = load_dataset(synthetic(2000, 4));
  EXPECT_EQ(first.train.samples, again.train.samples);
  EXPECT_EQ(first.train.labels, again.train.labels);
  EXPECT_NE(first.train.samples, other.train.samples);
  EXPECT_EQ(first.train.sample_count(), 60);
  EXPECT_EQ(first.test.size(), 200);
  EXPECT_NE(std::vector(first.train.labels.begin(), first.train.labels.begin() + 200),
            first.test.labels);
  std::vector<int> counts(7);
  for (const std::int32_t label : first.train.labels) ++counts.at(static_cast<std::size_t>(label));
  for (const int count : counts) EXPECT_NEAR(count, 2000. / 7, 80);
  for (const float mean : first.train.mean) EXPECT_NEAR(mean, 0.5, 0.01);
  for (const float deviation : first.train.deviation) EXPECT_NEAR(deviation, 0.2898, 0.005);
}

TEST(Synthetic, TextsAreOfTokensBelowTheNumberOfClasses) {
  DatasetOptions options = synthetic(500, 3);
  options.synthetic_context = 16;
  const DatasetSplits first = load_dataset(options), again = load_dataset(options);
  EXPECT_EQ(first.train.kind, SampleKind::kTokens);
  EXPECT_EQ(first.train.size(), 500);
  EXPECT_EQ(first.test.size(), 50);
  EXPECT_EQ(first.train.positions(), 16);
  EXPECT_EQ(first.train.classes, 7);
  EXPECT_EQ(first.train.tokens, again.train.tokens);
  std::vector<int> counts(7);
  for (const std::int32_t token : first.train.tokens) ++counts.at(static_cast<std::size_t>(token));
  for (const int count : counts) EXPECT_NEAR(count, 8000. / 7, 160);
  options.seed = 4;
  EXPECT_NE(load_dataset(options).train.tokens, first.train.tokens);
  options.synthetic_context = std::int64_t{1} << 40;
  EXPECT_NE(refusal(options), "accepted");
}

TEST(Synthetic, ImpossibleShapesAreRefused) {
  DatasetOptions options = synthetic(100);
  options.synthetic_shape = {0, 4, 3};
  EXPECT_NE(refusal(options), "accepted");
  options.synthetic_shape = {std::int64_t{1} << 40, std::int64_t{1} << 40,
                             3};  // the product overflows
  EXPECT_NE(refusal(options), "accepted");
  options = synthetic(0);
  EXPECT_NE(refusal(options), "accepted");
  options = synthetic(100);
  options.synthetic_classes = 0;
  EXPECT_NE(refusal(options), "accepted");
}

}  // namespace
}  // namespace io
