// Augmentation: what happens to pixels, how often, and that a sample's fate depends on (seed,
// epoch, sample) alone.
#include "io/data/images/augmentation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "io/base/files/io_error.h"
#include "io/data/images/image_preparer.h"
#include "io/data/loader/batch_loader.h"

namespace io {
namespace {

Dataset random_images(std::int64_t size, std::array<std::int64_t, 3> shape) {
  ImageSamples images{.format = {.shape = shape}};
  ClassLabels labels{.count = 3};
  SplitMix random(1, 2);
  for (std::int64_t i = 0; i < size; ++i) labels.ids.push_back(static_cast<std::int32_t>(i % 3));
  for (std::int64_t k = 0; k < size * images.format.count(); ++k)
    images.pixels.push_back(static_cast<std::uint8_t>(random.below(256)));
  for (std::int64_t c = 0; c < shape[2]; ++c) {
    images.format.mean.push_back(0.4f + 0.1f * static_cast<float>(c));
    images.format.deviation.push_back(0.2f + 0.1f * static_cast<float>(c));
  }
  return {.name = "images", .samples = std::move(images), .labels = std::move(labels)};
}

constexpr Augmentation kAll{
    .crop = true, .flip = true, .cutout = true, .crop_padding = 2, .cutout_size = 4};

using Fates =
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<float>>;  // by epoch and sample

Fates fates(const Dataset& set, int world_size, int workers, std::uint64_t seed) {
  Fates all;
  const auto elements = static_cast<std::size_t>(set.sample_count());
  for (int rank = 0; rank < world_size; ++rank) {
    const SamplerOptions order{.size = set.size(),
                               .global_batch = 7,
                               .rank = rank,
                               .world_size = world_size,
                               .seed = seed,
                               .shuffle = true};
    const std::int64_t steps = Sampler(order).steps_per_epoch();
    BatchLoader loader(set, order, {Normalization::kStandard, workers, 3, kAll});
    for (std::int64_t step = 0; step < 3 * steps; ++step) {
      const Batch& batch = loader.next();
      for (std::size_t i = 0; i < batch.sample_ids.size(); ++i) {
        const auto pixels = batch.samples.subspan(i * elements, elements);
        EXPECT_TRUE(
            all.try_emplace({batch.epoch, batch.sample_ids[i]}, pixels.begin(), pixels.end())
                .second);
      }
    }
  }
  return all;
}

TEST(Augmentation, DependsOnSeedEpochAndSampleNotOnRankOrWorker) {
  const Dataset set = random_images(20, {8, 9, 3});
  const Fates expected = fates(set, 1, 0, 5);
  ASSERT_EQ(expected.size(), 60u);
  for (const int world_size : {1, 2, 3})
    for (const int workers : {0, 1, 4})
      EXPECT_EQ(fates(set, world_size, workers, 5), expected) << world_size << " " << workers;
  EXPECT_NE(fates(set, 1, 0, 6), expected);
  int same = 0;
  for (std::int64_t id = 0; id < 20; ++id) same += expected.at({0, id}) == expected.at({1, id});
  EXPECT_LE(same, 1);  // another epoch, another fate
}

// The definition, a pixel at a time.
std::vector<float> naive(const Dataset& set, const std::uint8_t* in, const AugmentationDraw& draw,
                         bool standard) {
  const auto [height, width, channels] = set.shape();
  std::vector<float> out;
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x)
      for (std::int64_t c = 0; c < channels; ++c) {
        const std::int64_t from_y = y + draw.shift_y,
                           from_x = (draw.mirrored ? width - 1 - x : x) + draw.shift_x;
        const bool inside = from_y >= 0 && from_y < height && from_x >= 0 && from_x < width;
        const bool cutout = y >= draw.cutout_top && y < draw.cutout_bottom &&
                            x >= draw.cutout_left && x < draw.cutout_right;
        const auto channel = static_cast<std::size_t>(c);
        const float mean = set.as<ImageSamples>().format.mean[channel];
        float value =
            static_cast<float>(inside ? in[(from_y * width + from_x) * channels + c] : 0) / 255.0f;
        if (cutout) value = mean;
        out.push_back(standard ? (value - mean) / set.as<ImageSamples>().format.deviation[channel]
                               : value);
      }
  return out;
}

TEST(Augmentation, PixelsAreThoseOfTheDefinition) {
  for (const std::array<std::int64_t, 3> shape :
       {std::array<std::int64_t, 3>{8, 9, 3}, {5, 4, 1}}) {
    const Dataset set = random_images(1, shape);
    for (const bool standard : {false, true}) {
      for (std::int64_t sample = 0; sample < 50; ++sample) {
        SplitMix random = augmentation_random(3, 4, sample);
        const ImagePreparer preparer(set.as<ImageSamples>().format, set.name,
                                     standard ? Normalization::kStandard : Normalization::kUnit,
                                     kAll);
        std::vector<float> out(set.as<ImageSamples>().pixels.size());
        preparer.prepare(set.as<ImageSamples>().pixels.data(), random, out.data());
        ASSERT_EQ(out, naive(set, set.as<ImageSamples>().pixels.data(),
                             draw_augmentation(kAll, shape[0], shape[1], random), standard));
      }
    }
  }
}

// Bytes and draws are the same fates, left to somebody else to carry out.
TEST(Augmentation, BytesComeWithTheDrawsThatMakeTheFloats) {
  const Dataset set = random_images(20, {8, 9, 3});
  const auto elements = static_cast<std::size_t>(set.sample_count());
  for (const bool augmented : {true, false}) {
    const Fates expected = fates(set, 1, 0, 5);
    for (const int workers : {0, 2}) {
      const SamplerOptions order{.size = set.size(), .global_batch = 7, .seed = 5, .shuffle = true};
      BatchLoader loader(
          set, order,
          {.workers = workers, .augmentation = augmented ? kAll : Augmentation{}, .bytes = true});
      for (int step = 0; step < 9; ++step) {
        const Batch& batch = loader.next();
        ASSERT_TRUE(batch.samples.empty());
        ASSERT_EQ(batch.draws.size(), batch.sample_ids.size());
        ASSERT_EQ(batch.pixels.size(), batch.sample_ids.size() * elements);
        for (std::size_t i = 0; i < batch.draws.size(); ++i) {
          const std::uint8_t* image = set.as<ImageSamples>().pixels.data() +
                                      static_cast<std::size_t>(batch.sample_ids[i]) * elements;
          ASSERT_TRUE(std::equal(image, image + elements, batch.pixels.data() + i * elements));
          const std::vector<float> found = naive(set, image, batch.draws[i], true);
          ASSERT_EQ(found, augmented ? expected.at({batch.epoch, batch.sample_ids[i]})
                                     : naive(set, image, {}, true));
        }
      }
    }
  }
}

TEST(Augmentation, TableHasTheValueOfEachByteAndOfHoles) {
  const Dataset set = random_images(1, {1, 1, 2});
  for (const bool standard : {false, true}) {
    const std::vector<float> table =
        ImagePreparer(set.as<ImageSamples>().format, set.name,
                      standard ? Normalization::kStandard : Normalization::kUnit, {})
            .table();
    ASSERT_EQ(table.size(), 2u * 257);
    const std::vector<std::uint8_t> bytes{7, 255};
    const std::vector<float> values = naive(set, bytes.data(), {}, standard);
    const std::vector<float> filled =
        naive(set, bytes.data(), {.cutout_bottom = 1, .cutout_right = 1}, standard);
    EXPECT_EQ((std::vector<float>{table[7], table[257 + 255]}), values);
    EXPECT_EQ((std::vector<float>{table[256], table[257 + 256]}), filled);
  }
}

TEST(Augmentation, NoneIsTheImageItself) {
  const Dataset set = random_images(1, {6, 6, 3});
  std::vector<float> out(set.as<ImageSamples>().pixels.size());
  ImagePreparer(set.as<ImageSamples>().format, set.name, Normalization::kUnit, {})
      .prepare(set.as<ImageSamples>().pixels.data(), SplitMix(1, 1), out.data());
  EXPECT_EQ(out, naive(set, set.as<ImageSamples>().pixels.data(), {}, false));
}

TEST(Augmentation, OneChangeDoesNotMoveAnother) {
  for (std::int64_t sample = 0; sample < 100; ++sample) {
    SplitMix one = augmentation_random(0, 0, sample), other = one;
    const AugmentationDraw all = draw_augmentation(kAll, 32, 32, one);
    const AugmentationDraw flip =
        draw_augmentation({.flip = true, .crop_padding = 2, .cutout_size = 4}, 32, 32, other);
    EXPECT_EQ(all.mirrored, flip.mirrored);
    EXPECT_EQ(flip.shift_x, 0);
    EXPECT_EQ(flip.cutout_bottom, 0);
  }
}

// Of n draws with probability p, within 5 deviations: by chance wrong once in 1.7 million.
void expect_share(int count, int n, double p, const std::string& what) {
  EXPECT_NEAR(count, n * p, 5 * std::sqrt(n * p * (1 - p))) << what;
}

TEST(Augmentation, DrawsAreUniform) {
  constexpr int kDraws = 36'000;
  constexpr Augmentation kUsual{
      .crop = true, .flip = true, .cutout = true, .crop_padding = 4, .cutout_size = 8};
  std::map<std::int64_t, int> shifts_y, shifts_x, both, tops;
  int mirrored = 0, whole = 0;
  for (int i = 0; i < kDraws; ++i) {
    SplitMix random = augmentation_random(7, i % 3, i / 3);
    const AugmentationDraw draw = draw_augmentation(kUsual, 32, 32, random);
    ++shifts_y[draw.shift_y];
    ++shifts_x[draw.shift_x];
    ++both[draw.shift_y * 100 + draw.shift_x];
    ++tops[draw.cutout_top];
    mirrored += draw.mirrored;
    whole += draw.cutout_bottom - draw.cutout_top == 8 && draw.cutout_right - draw.cutout_left == 8;
  }
  EXPECT_EQ(shifts_y.size(), 9u);
  EXPECT_EQ(shifts_x.size(), 9u);
  EXPECT_EQ(both.size(), 81u);
  for (std::int64_t shift = -4; shift <= 4; ++shift) {
    expect_share(shifts_y[shift], kDraws, 1.0 / 9, "rows shifted by " + std::to_string(shift));
    expect_share(shifts_x[shift], kDraws, 1.0 / 9, "columns shifted by " + std::to_string(shift));
  }
  expect_share(mirrored, kDraws, 0.5, "mirrored");
  expect_share(tops[0], kDraws, 5.0 / 32, "cutouts at the top");  // centres 0..4
  expect_share(tops[20], kDraws, 1.0 / 32, "cutouts at row 20");
  expect_share(whole, kDraws, (25.0 / 32) * (25.0 / 32), "whole cutouts");  // centres 4..28
}

TEST(Augmentation, NeedsImages) {
  const Dataset set{.samples = FeatureSamples{.extents = {1, 1, 1}, .values = {1, 2}},
                    .labels = ClassLabels{.ids = {0, 0}, .count = 1}};
  EXPECT_THROW(BatchLoader(set, {.size = 2, .global_batch = 1}, {Normalization::kUnit, 0, 1, kAll}),
               ConfigError);
  EXPECT_FALSE(set.has_bytes());
  EXPECT_THROW(BatchLoader(set, {.size = 2, .global_batch = 1}, {.bytes = true}), ConfigError);
}

}  // namespace
}  // namespace io
