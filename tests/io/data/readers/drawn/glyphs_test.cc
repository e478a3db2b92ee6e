// The built-in digits: the same everywhere, balanced, and too hard for a linear model.
#include "io/data/readers/drawn/glyphs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace io {
namespace {

const std::vector<std::uint8_t>& pixels(const Dataset& set) {
  return set.as<ImageSamples>().pixels;
}
const std::vector<std::int32_t>& labels(const Dataset& set) { return set.as<ClassLabels>().ids; }

std::uint64_t digest(const Dataset& set) {  // FNV-1a
  std::uint64_t hash = 0xCBF29CE484222325;
  const auto add = [&hash](std::uint64_t byte) { hash = (hash ^ byte) * 0x100000001B3; };
  for (const std::uint8_t byte : set.as<ImageSamples>().pixels) add(byte);
  for (const std::int32_t label : set.as<ClassLabels>().ids) add(static_cast<std::uint64_t>(label));
  return hash;
}

// Results, benchmarks and checkpoints are compared across machines: a change of these numbers
// changes the data set.
TEST(Glyphs, TheBytesAreKnown) {
  EXPECT_EQ(digest(draw_glyphs(GlyphSplit::kTrain, 1000, 0)), 0xD431EF7027F583B6u);
  EXPECT_EQ(digest(draw_glyphs(GlyphSplit::kTest, 1000, 0)), 0x6AB38DF32F6F7BB0u);
}

TEST(Glyphs, DependOnSeedSplitAndPlaceOnly) {
  const Dataset longer = draw_glyphs(GlyphSplit::kTrain, 300, 5),
                shorter = draw_glyphs(GlyphSplit::kTrain, 123, 5);
  EXPECT_TRUE(std::ranges::equal(pixels(shorter), std::span(pixels(longer)).first(123 * 784)));
  EXPECT_TRUE(std::ranges::equal(labels(shorter), std::span(labels(longer)).first(123)));
  EXPECT_NE(pixels(draw_glyphs(GlyphSplit::kTest, 300, 5)), pixels(longer));
  EXPECT_NE(pixels(draw_glyphs(GlyphSplit::kTrain, 300, 6)), pixels(longer));
  EXPECT_NE(labels(draw_glyphs(GlyphSplit::kTest, 300, 5)), labels(longer));
}

TEST(Glyphs, EachDigitIsEquallyFrequent) {
  const Dataset set = draw_glyphs(GlyphSplit::kTrain, 2000, 1);
  EXPECT_EQ(set.shape(), (std::array<std::int64_t, 3>{28, 28, 1}));
  EXPECT_EQ(set.classes(), 10);
  for (int digit = 0; digit < 10; ++digit)
    EXPECT_EQ(std::count(set.as<ClassLabels>().ids.begin(), set.as<ClassLabels>().ids.end(), digit),
              200);
}

// Softmax regression on pixels in [0, 1], one sample at a time.
class LinearModel {
 public:
  int forward(const std::uint8_t* pixels) {
    scores_ = bias_;
    for (std::size_t k = 0; k < 784; ++k) {
      inputs_[k] = static_cast<float>(pixels[k]) / 255.0f;
      for (std::size_t c = 0; c < 10; ++c) scores_[c] += weights_[k][c] * inputs_[k];
    }
    return static_cast<int>(std::max_element(scores_.begin(), scores_.end()) - scores_.begin());
  }

  void train(const std::uint8_t* pixels, std::int32_t label, float rate) {
    const float highest = scores_[static_cast<std::size_t>(forward(pixels))];
    float total = 0.0f;
    for (float& score : scores_) total += score = std::exp(score - highest);
    for (float& score : scores_) score *= -rate / total;  // from here on the step of each class
    scores_[static_cast<std::size_t>(label)] += rate;
    for (std::size_t c = 0; c < 10; ++c) bias_[c] += scores_[c];
    for (std::size_t k = 0; k < 784; ++k) {
      for (std::size_t c = 0; c < 10; ++c) weights_[k][c] += scores_[c] * inputs_[k];
    }
  }

 private:
  std::array<std::array<float, 10>, 784> weights_{};
  std::array<float, 784> inputs_{};
  std::array<float, 10> bias_{}, scores_{};
};

TEST(Glyphs, ALinearModelLearnsButStaysBelow95Percent) {
  const Dataset train = draw_glyphs(GlyphSplit::kTrain, 12'000, 0),
                test = draw_glyphs(GlyphSplit::kTest, 3'000, 0);
  LinearModel model;
  for (int epoch = 0; epoch < 5; ++epoch) {
    for (std::size_t i = 0; i < train.as<ClassLabels>().ids.size(); ++i)
      model.train(&train.as<ImageSamples>().pixels[784 * i], train.as<ClassLabels>().ids[i],
                  0.002f);
  }
  int right = 0;
  for (std::size_t i = 0; i < test.as<ClassLabels>().ids.size(); ++i)
    right +=
        model.forward(&test.as<ImageSamples>().pixels[784 * i]) == test.as<ClassLabels>().ids[i];
  const double accuracy = 100.0 * right / static_cast<double>(test.size());
  RecordProperty("accuracy", std::to_string(accuracy));
  EXPECT_GT(accuracy, 75.0);
  EXPECT_LT(accuracy, 93.0);
}

}  // namespace
}  // namespace io
