// Weights of classes and of the positives of labels: counted, given, in batches, and refused.
#include "io/data/dataset/class_weights.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "io/base/files/io_error.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"

namespace io {
namespace {

using Doubles = std::vector<double>;

Dataset with_classes(std::vector<std::int32_t> ids, std::int64_t count) {
  const std::size_t size = ids.size();
  return {.name = "set",
          .samples = FeatureSamples{.extents = {1, 1, 1}, .values = std::vector<float>(size, 1)},
          .labels = ClassLabels{.ids = std::move(ids), .count = count}};
}

Dataset with_labels(std::vector<float> values) {
  const std::size_t size = values.size() / 2;
  return {.name = "set",
          .samples = FeatureSamples{.extents = {1, 1, 1}, .values = std::vector<float>(size, 1)},
          .labels = MultiLabels{.names = {"a", "b"}, .values = std::move(values)}};
}

constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();

// compute_class_weight('balanced') of scikit-learn for the classes that occur.
TEST(ClassWeights, BalancedOnesAreScikitLearns) {
  Dataset set = with_classes({0, 0, 0, 0, 0, 1, 1, 2}, 4);
  set_class_weights("balanced", set);
  EXPECT_EQ(set.as<ClassLabels>().weights, (Doubles{0.4, 1, 2, 1}));
  EXPECT_EQ(set.loss_weights(), (Doubles{0.4, 0.4, 0.4, 0.4, 0.4, 1, 1, 2}));
}

TEST(ClassWeights, BalancedOnesOfPositivesAreNegativesPerPositive) {
  Dataset set = with_labels({1, 1, 0, 1, 0, kUnknown, 0, 1});
  set_class_weights("balanced", set);
  EXPECT_EQ(set.as<MultiLabels>().positive_weights, (Doubles{3, 1})) << "b has no negatives";
  EXPECT_EQ(set.loss_weights(), (Doubles{2, 2, 1, 2})) << "the divisor counts known labels";
}

TEST(ClassWeights, AreInBatches) {
  Dataset classes = with_classes({1, 0, 1}, 2);
  set_class_weights("0.3, 2", classes);
  BatchMemory memory;
  const auto fill = [&](const Dataset& set) {
    const auto part = batch_part(set.labels, set.name, set.samples);
    memory = {};
    memory.ids = {2, 1};
    memory.batch.sample_ids = memory.ids;
    part->reserve(memory, 2);
    part->fill(memory);
  };
  fill(classes);
  EXPECT_EQ(Doubles(memory.batch.weights.begin(), memory.batch.weights.end()), (Doubles{2, 0.3}));
  Dataset labels = with_labels({1, 1, 0, 1, 1, 0});
  set_class_weights("3,0.7", labels);
  fill(labels);
  EXPECT_EQ(std::vector<float>(memory.batch.targets.begin(), memory.batch.targets.end()),
            (std::vector<float>{1, 0, 0, 1}));
  EXPECT_EQ(Doubles(memory.batch.weights.begin(), memory.batch.weights.end()),
            (Doubles{3, 0.7, 3, 0.7}));
}

TEST(ClassWeights, NoneChangeNothing) {
  Dataset set = with_classes({0, 1}, 2);
  set_class_weights("", set);
  EXPECT_TRUE(set.loss_weights().empty());
}

TEST(ClassWeights, RefuseOthersByName) {
  const auto refuses = [](const std::string& option, Dataset set, const std::string& values) {
    EXPECT_VALUES(test_support::error_of<ConfigError>([&] { set_class_weights(option, set); }),
                  "--class-weights " + values);
  };
  const Dataset classes = with_classes({0, 1, 1}, 2), labels = with_labels({1, 0, 0, 1});
  refuses("1", classes, "1 2 class set");
  refuses("1,2,3", labels, "3 2 label set");
  for (const char* bad : {"1,x", "1,", "1,-1", "1,inf", "1,nan", "balance,1"})
    refuses(bad, classes, "expected numbers from 0");
  refuses("1,0", labels, "expected numbers above 0");
  Dataset numbers = classes;
  numbers.labels = TargetValues{.scale = {}, .values = {1, 2, 3}};
  refuses("balanced", numbers, "--task multi-label set");
}

}  // namespace
}  // namespace io
