// The loader: contents, order for any number of workers, seeking, errors, memory, end.
#include "io/data/loader/batch_loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "io/base/files/io_error.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/time_limits.h"

namespace io {
namespace {

// Byte k of sample i is (7 i + k) mod 256, its label i mod 5.
Dataset small_set(std::int64_t size, std::array<std::int64_t, 3> shape = {3, 2, 2}) {
  ImageSamples images{.format = {.shape = shape}};
  ClassLabels labels{.count = 5};
  for (std::int64_t i = 0; i < size; ++i) {
    labels.ids.push_back(static_cast<std::int32_t>(i % 5));
    for (std::int64_t k = 0; k < images.format.count(); ++k)
      images.pixels.push_back(static_cast<std::uint8_t>(7 * i + k));
  }
  for (std::int64_t c = 0; c < shape[2]; ++c) {
    images.format.mean.push_back(0.3f + 0.1f * static_cast<float>(c));
    images.format.deviation.push_back(0.2f + 0.1f * static_cast<float>(c));
  }
  return {.name = "small", .samples = std::move(images), .labels = std::move(labels)};
}

void expect_batch(const Batch& batch, const Dataset& set, Sampler& sampler, std::int64_t epoch,
                  std::int64_t step) {
  ASSERT_EQ(batch.epoch, epoch);
  ASSERT_EQ(batch.step, step);
  sampler.set_epoch(epoch);
  const auto ids = sampler.indices(step);
  ASSERT_TRUE(std::equal(ids.begin(), ids.end(), batch.sample_ids.begin(), batch.sample_ids.end()));
  ASSERT_EQ(batch.samples.size(), ids.size() * static_cast<std::size_t>(set.sample_count()));
  ASSERT_EQ(batch.count(), static_cast<std::int64_t>(ids.size()));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<std::size_t>(ids[i]),
               elements = static_cast<std::size_t>(set.sample_count());
    ASSERT_EQ(batch.labels[i], set.as<ClassLabels>().ids[id]);
    for (std::size_t k = 0; k < elements; ++k) {
      ASSERT_EQ(batch.samples[i * elements + k],
                static_cast<float>(set.as<ImageSamples>().pixels[id * elements + k]) / 255.0f);
    }
  }
}

struct Crew {
  int workers, prefetch;
};
void PrintTo(const Crew& crew, std::ostream* out) {
  *out << crew.workers << " workers, " << crew.prefetch << " ahead";
}
class BatchLoaderCrews : public ::testing::TestWithParam<Crew> {
 protected:
  LoaderOptions options() const {
    return {Normalization::kUnit, GetParam().workers, GetParam().prefetch};
  }
};
INSTANTIATE_TEST_SUITE_P(Workers, BatchLoaderCrews,
                         ::testing::Values(Crew{0, 2}, Crew{1, 0}, Crew{1, 1}, Crew{1, 2},
                                           Crew{3, 2}, Crew{4, 8}),
                         [](const auto& crew) {
                           return std::to_string(crew.param.workers) + "Workers" +
                                  std::to_string(crew.param.prefetch) + "Ahead";
                         });

TEST_P(BatchLoaderCrews, DeliversTheSamplersStepsInOrderOverEpochs) {
  const Dataset set = small_set(53);
  for (const int rank : {0, 2}) {
    const SamplerOptions order{53, 10, rank, 3, 11, true};
    Sampler sampler(order);
    BatchLoader loader(set, order, options());
    for (int epoch = 0; epoch < 20; ++epoch) {
      for (std::int64_t step = 0; step < 6; ++step)
        expect_batch(loader.next(), set, sampler, epoch, step);
    }
  }
}

TEST_P(BatchLoaderCrews, SeeksAnywhereAtAnyTime) {
  const Dataset set = small_set(40);
  const SamplerOptions order{40, 7, 0, 1, 11, true};
  Sampler sampler(order);
  BatchLoader loader(set, order, options());
  for (int round = 0; round < 30; ++round) {
    loader.seek(round % 7, round % 6);
    expect_batch(loader.next(), set, sampler, round % 7, round % 6);
    if (round % 3 == 0) continue;
    const bool last = round % 6 == 5;
    expect_batch(loader.next(), set, sampler, last ? round % 7 + 1 : round % 7,
                 last ? 0 : round % 6 + 1);
  }
  loader.seek(4, 6);  // the end of epoch 4
  expect_batch(loader.next(), set, sampler, 5, 0);
  EXPECT_THROW(loader.seek(0, 7), ConfigError);
  EXPECT_THROW(loader.seek(-1, 0), ConfigError);
}

TEST_P(BatchLoaderCrews, DeliversTheRestOfADividedEpochAndThenWholeOnes) {
  const Dataset set = small_set(40);
  const SamplerOptions order{
      .size = 40, .global_batch = 6, .rank = 1, .world_size = 3, .seed = 11, .shard = Shard::kFile};
  const std::vector<Division> divisions{{0, 2}, {12, 3}};
  Sampler sampler(order);
  BatchLoader loader(set, order, options());
  const auto expect_steps = [&](std::int64_t first) {
    for (std::int64_t step = first; step < sampler.steps_per_epoch(); ++step) {
      const Batch& batch = loader.next();
      EXPECT_EQ(batch.step, step);
      EXPECT_TRUE(std::ranges::equal(batch.sample_ids, sampler.indices(step)));
    }
  };
  for (int round = 0; round < 2; ++round) {
    sampler.set_epoch(4, divisions);
    loader.seek(4, 2, 0, divisions);
    expect_steps(2);
    sampler.set_epoch(5);
    expect_steps(0);
  }
  loader.seek(4, 2, 0, divisions);
  sampler.set_epoch(4);
  loader.seek(4, 1);  // of the epoch as a whole
  expect_steps(1);
}

TEST_P(BatchLoaderCrews, AllocatesNothingAfterConstruction) {
  const Dataset set = small_set(53);
  LoaderOptions all = options();
  all.augmentation = {.crop = true, .flip = true, .cutout = true};
  BatchLoader loader(set, {53, 10, 0, 1, 11, true}, all);
  const long before = test_support::allocations.load();
  float sum = 0;
  for (int i = 0; i < 100; ++i) sum += loader.next().samples[0];  // 16 epochs
  loader.seek(2, 3);
  sum += loader.next().samples[0];
  EXPECT_EQ(test_support::allocations.load() - before, 0);
  EXPECT_GT(sum, 0);
}

TEST_P(BatchLoaderCrews, AllocatesNothingForOtherKindsEither) {
  const std::vector<std::int32_t> classes(40);
  const FeatureSamples rows{.extents = {1, 1, 3}, .values = std::vector<float>(120)};
  const TokenSamples windows{.context = 7, .tokens = std::vector<std::int32_t>(47)};
  const Dataset sets[] = {
      {.samples = rows, .labels = ClassLabels{.ids = classes, .count = 1}},
      {.samples = rows, .labels = TargetValues{.scale = {}, .values = std::vector<float>(40)}},
      {.samples = windows, .labels = NextTokens{.count = 1}},
      {.samples = ArraySamples{.extents = {1, 3, 1}, .values = std::vector<float>(120)},
       .labels =
           PositionLabels{
               .extents = {3}, .ids = std::vector<std::int32_t>(120), .count = 1, .weights = {2}}},
      {.samples =
           ArraySamples{
               .extents = {3, 1, 1}, .are_tokens = true, .ids = std::vector<std::int32_t>(120)},
       .labels = ClassLabels{.ids = classes, .count = 1}}};
  for (const Dataset& set : sets) {
    ASSERT_EQ(set.size(), 40);
    BatchLoader loader(set, {40, 9, 0, 1, 11, true}, options());
    const long before = test_support::allocations.load();
    std::int64_t count = 0;
    for (int i = 0; i < 50; ++i) count += loader.next().count();  // 10 epochs
    EXPECT_EQ(test_support::allocations.load() - before, 0);
    EXPECT_EQ(count, 400);
  }
}

TEST_P(BatchLoaderCrews, AnErrorInAWorkerReachesTheCallerAtItsStep) {
  Dataset set = small_set(40);
  set.as<ClassLabels>().ids[25] = 5;
  BatchLoader loader(set, {40, 10, 0, 1, 0, false}, options());
  loader.next();
  loader.next();
  EXPECT_VALUES(test_support::error_of<DataError>([&] { loader.next(); }),
                "small: label 25: 5, 0..4");
  EXPECT_EQ(loader.next().step, 3);
}

TEST_P(BatchLoaderCrews, EndsAtOnceWhateverItIsDoing) {
  const Dataset set = small_set(400, {28, 28, 1});
  for (int i = 0; i < 12; ++i) {
    auto loader =
        std::make_unique<BatchLoader>(set, SamplerOptions{400, 100, 0, 1, 0, true}, options());
    if (i % 2 == 1) loader->next();
    if (i % 3 == 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const auto start = std::chrono::steady_clock::now();
    loader.reset();
    EXPECT_FALSE(test_support::is_past(start, std::chrono::seconds(10)));
  }
}

TEST_P(BatchLoaderCrews, ABatchStaysUntilTheFollowingCall) {
  const Dataset set = small_set(100);
  BatchLoader loader(set, {100, 10, 0, 1, 0, false}, options());
  for (int i = 0; i < 10; ++i) {
    const Batch& batch = loader.next();
    std::this_thread::sleep_for(
        std::chrono::milliseconds(2));  // time for the workers to overwrite what they may
    ASSERT_EQ(batch.sample_ids[0], 10 * i);
    ASSERT_EQ(batch.samples[0],
              static_cast<float>(set.as<ImageSamples>().pixels[static_cast<std::size_t>(120 * i)]) /
                  255.0f);
  }
}

TEST(BatchLoader, ARankWithoutSamplesGetsEmptyBatches) {
  const Dataset set = small_set(5);
  BatchLoader loader(set, {5, 2, 3, 4, 0, false}, {});
  std::int64_t total = 0;
  for (int step = 0; step < 3; ++step) {
    const Batch& batch = loader.next();
    EXPECT_EQ(batch.samples.size(), static_cast<std::size_t>(12 * batch.count()));
    total += batch.count();
  }
  EXPECT_EQ(total, 1);
  BatchLoader idle(set, {5, 2, 6, 7, 0, false}, {});
  EXPECT_EQ(idle.next().count(), 0);
}

TEST(BatchLoader, GivesFeaturesAsTheyAre) {
  FeatureSamples rows{.extents = {1, 1, 3}};
  for (int i = 0; i < 12; ++i) rows.values.push_back(0.5f * static_cast<float>(i) - 2);
  const Dataset set{.samples = rows, .labels = ClassLabels{.ids = {0, 1, 0, 1}, .count = 2}};
  BatchLoader loader(set, {.size = 4, .global_batch = 3, .shuffle = false}, {});
  const Batch& batch = loader.next();
  EXPECT_EQ(batch.count(), 3);
  EXPECT_TRUE(std::equal(batch.samples.begin(), batch.samples.end(), rows.values.begin(),
                         rows.values.begin() + 9));
  EXPECT_TRUE(batch.tokens.empty());
  EXPECT_EQ(batch.labels[1], 1);
}

TEST(BatchLoader, CutsWindowsOfTokensAndTheirSuccessors) {
  Dataset set{.samples = TokenSamples{.context = 4, .stride = 3},
              .labels = NextTokens{.count = 20}};
  set.as<TokenSamples>().tokens = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}};
  ASSERT_EQ(set.size(), 3);  // windows at 0, 3, 6; the last label is token 10
  BatchLoader loader(set, {.size = 3, .global_batch = 3, .shuffle = false}, {});
  const Batch& batch = loader.next();
  EXPECT_EQ(batch.count(), 3);
  EXPECT_EQ(std::vector<std::int32_t>(batch.tokens.begin(), batch.tokens.end()),
            (std::vector<std::int32_t>{0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 9}));
  EXPECT_EQ(std::vector<std::int32_t>(batch.labels.begin(), batch.labels.end()),
            (std::vector<std::int32_t>{1, 2, 3, 4, 4, 5, 6, 7, 7, 8, 9, 10}));
  EXPECT_TRUE(batch.samples.empty());
  set.as<TokenSamples>().tokens.keep_first(10);
  EXPECT_EQ(set.size(), 2);
  set.as<TokenSamples>().tokens.keep_first(4);
  EXPECT_EQ(set.size(), 0);
}

// Only what a device that has the samples lacks.
TEST(BatchLoader, NamesResidentSamplesByTheirIds) {
  const SamplerOptions order{.size = 7, .global_batch = 3, .seed = 2, .shuffle = true};
  const Dataset images = small_set(7);
  const Augmentation flip{.flip = true};
  BatchLoader sent(images, order, {.augmentation = flip, .bytes = true}),
      named(images, order, {.augmentation = flip, .bytes = true, .resident = true});
  for (int step = 0; step < 6; ++step) {
    const Batch &expected = sent.next(), &found = named.next();
    EXPECT_FALSE(expected.resident);
    EXPECT_TRUE(found.resident);
    EXPECT_TRUE(found.pixels.empty());
    EXPECT_TRUE(std::ranges::equal(found.sample_ids, expected.sample_ids));
    EXPECT_TRUE(std::ranges::equal(found.labels, expected.labels));
    ASSERT_EQ(found.draws.size(), expected.draws.size());
    for (std::size_t i = 0; i < found.draws.size(); ++i)
      EXPECT_EQ(found.draws[i].mirrored, expected.draws[i].mirrored);
  }
  const Dataset text{.name = "text",
                     .samples = TokenSamples{.context = 2, .tokens = std::vector<std::int32_t>(9)},
                     .labels = NextTokens{.count = 4}};
  BatchLoader of_text(text, order, {.resident = true});
  const Batch& windows = of_text.next();
  EXPECT_EQ(windows.count(), 3);
  EXPECT_TRUE(windows.tokens.empty() && windows.labels.empty());
  EXPECT_THROW(BatchLoader(images, order, {.resident = true}), ConfigError);
}

TEST(BatchLoader, StandardisesEachChannel) {
  const Dataset set = small_set(4, {2, 2, 3});
  BatchLoader loader(set, {4, 4, 0, 1, 0, false}, {Normalization::kStandard, 1, 1});
  const Batch& batch = loader.next();
  const auto& [format, pixels, source] = set.as<ImageSamples>();
  for (std::size_t k = 0; k < pixels.size(); ++k) {
    const std::size_t c = k % 3;
    ASSERT_EQ(batch.samples[k],
              (static_cast<float>(pixels[k]) / 255.0f - format.mean[c]) / format.deviation[c]);
  }
}

TEST(BatchLoader, RefusesWhatDoesNotFit) {
  const SamplerOptions order{10, 4, 0, 1, 0, true};
  Dataset set = small_set(10);
  EXPECT_THROW(BatchLoader(set, {11, 4, 0, 1, 0, true}, {}), ConfigError);
  EXPECT_THROW(BatchLoader(set, order, {Normalization::kUnit, -1, 2}), ConfigError);
  EXPECT_THROW(BatchLoader(set, order, {Normalization::kUnit, 1, -1}), ConfigError);
  set.as<ImageSamples>().format.deviation[1] = 0;
  EXPECT_THROW(BatchLoader(set, order, {Normalization::kStandard, 1, 1}), ConfigError);
  set.as<ImageSamples>().format.deviation.pop_back();
  EXPECT_THROW(BatchLoader(set, order, {Normalization::kStandard, 1, 1}), ConfigError);
  set.as<ImageSamples>().pixels.pop_back();
  EXPECT_THROW(BatchLoader(set, order, {}), DataError);
}

}  // namespace
}  // namespace io
