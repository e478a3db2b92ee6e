// The public data sets as they are: counts, classes, first items and the well-known constants.
#include <gtest/gtest.h>

#include <algorithm>

#include "io/data/sources/dataset_registry.h"
#include "tests/support/test_support.h"

namespace io {
namespace {

DatasetSplits load(const std::string& name, const std::string& directory) {
  DatasetOptions options;
  options.name = name;
  options.directory = directory;
  return load_dataset(options);
}

std::vector<std::int64_t> label_counts(const Dataset& split) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(split.classes()));
  for (const std::int32_t label : split.as<ClassLabels>().ids)
    ++counts.at(static_cast<std::size_t>(label));
  return counts;
}

void expect_constants(const Dataset& split, const std::vector<double>& mean,
                      const std::vector<double>& deviation) {
  ASSERT_EQ(split.as<ImageSamples>().format.mean.size(), mean.size());
  for (std::size_t c = 0; c < mean.size(); ++c) {
    EXPECT_NEAR(split.as<ImageSamples>().format.mean[c], mean[c], 0.00005);
    EXPECT_NEAR(split.as<ImageSamples>().format.deviation[c], deviation[c],
                0.00006);  // published from float32 sums
  }
}

TEST(RealData, Mnist) {
  const std::string directory = test_support::data_directory("mnist");
  if (directory.empty()) GTEST_SKIP() << "no data set mnist";
  const DatasetSplits splits = load("mnist", directory);
  EXPECT_EQ(label_counts(splits.train), (std::vector<std::int64_t>{5923, 6742, 5958, 6131, 5842,
                                                                   5421, 5918, 6265, 5851, 5949}));
  EXPECT_EQ(label_counts(splits.test),
            (std::vector<std::int64_t>{980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009}));
  EXPECT_EQ(splits.test.as<ImageSamples>().pixels.size(), 10'000u * 784);
  EXPECT_EQ(splits.train.as<ClassLabels>().ids[0], 5);
  expect_constants(splits.train, {0.1307}, {0.3081});
}

TEST(RealData, FashionMnist) {
  const std::string directory = test_support::data_directory("fashion-mnist");
  if (directory.empty()) GTEST_SKIP() << "no data set fashion-mnist";
  const DatasetSplits splits = load("fashion-mnist", directory);
  EXPECT_EQ(label_counts(splits.train), std::vector<std::int64_t>(10, 6000));
  EXPECT_EQ(label_counts(splits.test), std::vector<std::int64_t>(10, 1000));
  expect_constants(splits.train, {0.2860}, {0.3530});
}

// Through the script, which unpacks the files.
TEST(RealData, Cifar10) {
  if (test_support::data_directory("cifar10").empty()) GTEST_SKIP() << "no data set cifar10";
  const test_support::TemporaryDirectory folder;
  const auto got = test_support::run_command(
      {test_support::source_directory() + "/tools/scripts/get_data.sh", "cifar10", "--mirror",
       "file://" + test_support::data_directory(""), "--dir", folder.path().string()},
      {}, 150'000);
  ASSERT_EQ(got.exit_code, 0) << got.err;
  const DatasetSplits splits = load("cifar10", folder.path().string());
  EXPECT_EQ(label_counts(splits.train), std::vector<std::int64_t>(10, 5000));
  EXPECT_EQ(label_counts(splits.test),
            (std::vector<std::int64_t>{1000, 1000, 1000, 1000, 1000, 1000, 1000, 999, 981, 1000}));
  EXPECT_EQ(splits.train.as<ImageSamples>().pixels.size(), 50'000u * 3072);
  expect_constants(splits.train, {0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616});
}

TEST(RealData, TinyShakespeare) {
  const std::string directory = test_support::data_directory("tinyshakespeare");
  if (directory.empty()) GTEST_SKIP() << "no data set tinyshakespeare";
  const DatasetSplits splits = load("tinyshakespeare", directory);
  EXPECT_EQ(splits.train.as<TokenSamples>().tokens.size(), 1'003'854);
  EXPECT_EQ(splits.test.as<TokenSamples>().tokens.size(), 111'540);
  EXPECT_EQ(splits.train.classes(), 65);
  EXPECT_EQ(splits.train.vocabulary(),
            "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");
  EXPECT_EQ(splits.train.size(), (1'003'854 - 1) / 64);
  std::vector<std::int32_t> ids(14);
  splits.train.as<TokenSamples>().tokens.copy(0, ids);
  std::string begin;
  for (const std::int32_t id : ids)
    begin += splits.train.vocabulary()[static_cast<std::size_t>(id)];
  EXPECT_EQ(begin, "First Citizen:");
}

}  // namespace
}  // namespace io
