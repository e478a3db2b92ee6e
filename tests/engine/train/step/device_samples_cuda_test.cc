// Steps on a CUDA device that has the samples: the same as with samples that are sent.
#include "engine/train/step/device_samples.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "engine/core/cuda.h"
#include "engine/core/error.h"
#include "engine/optim/loss_scale.h"
#include "engine/train/step/batch_views.h"
#include "engine/train/step/device_work.h"
#include "tests/engine/optim/typed_optimizers.h"
#include "tests/engine/train/tiny_training.h"

namespace {

using engine::DeviceSamples;

class DeviceSamplesCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = engine::cuda::missing(); !missing.empty())
      GTEST_SKIP() << missing;
    engine::cuda::use_device(0);
  }
};

constexpr engine::Device kDevice{engine::Device::Kind::kCuda, 0};
constexpr io::Augmentation kAll{
    .crop = true, .flip = true, .cutout = true, .crop_padding = 2, .cutout_size = 3};

enum class Sent { kNumbers, kBytes, kIds };

// Four steps over 17 images, the third of them with 5 instead of 6.
std::vector<float> trained(Sent sent, std::int64_t micro_batches, engine::DType storage) {
  const bool bytes = sent != Sent::kNumbers;
  tiny_training::Parts parts(
      {.shape = {3, 5, 3},
       .samples = 17,
       .batch = 6,
       .micro_batches = micro_batches,
       .shuffle = true,
       .seed = 1,
       .storage = storage,
       .device = kDevice,
       .loader = {.augmentation = kAll, .bytes = bytes, .resident = sent == Sent::kIds}});
  const auto optimizer = engine::make_sgd({.momentum = 0.9}, parts.model.parameters.values);
  engine::StepControl control = engine::first_control({});
  std::unique_ptr<DeviceSamples> samples;
  if (sent == Sent::kIds) samples = std::make_unique<DeviceSamples>(parts.set, kDevice);
  engine::DeviceWorkOptions options;
  options.device = kDevice;
  options.micro_batches = micro_batches;
  options.control = &control;
  options.transfer.resident = samples ? &samples->view() : nullptr;
  if (bytes)
    options.image_table = engine::image_table(parts.set, io::Normalization::kUnit, kDevice);
  options.make_optimizer = [](const engine::FlatBuffer& values) {
    return engine::make_sgd({.momentum = 0.9}, values);
  };
  const auto work = engine::make_device_work(parts.plan, parts.model, *optimizer, options);
  std::vector<float> result;
  for (int step = 0; step < 4; ++step) {
    engine::StepPhases phases;
    work->step({.batch = parts.next_batch(), .scale = 1.0 / 6, .lr = 0.05}, phases);
    result.push_back(static_cast<float>(work->results().last.loss_sum));
  }
  const engine::HostView view(work->home(), engine::Access::kRead);
  const engine::FlatBuffer& values = parts.model.parameters.values;
  result.insert(result.end(), values.flat().as<float>(), values.flat().as<float>() + values.size());
  return result;
}

TEST_F(DeviceSamplesCuda, ImagesAreThoseThatAreSent) {
  for (const auto& [micro_batches, storage] :
       {std::pair{1, engine::DType::kF32}, {2, engine::DType::kBF16}}) {
    const std::vector<float> ids = trained(Sent::kIds, micro_batches, storage);
    EXPECT_EQ(ids, trained(Sent::kBytes, micro_batches, storage));
    EXPECT_EQ(ids, trained(Sent::kNumbers, micro_batches, storage));
  }
}

TEST_F(DeviceSamplesCuda, BatchesThatLackTheirSamplesNeedThemOnTheDevice) {
  tiny_training::Parts parts({.device = kDevice, .loader = {.bytes = true, .resident = true}});
  const auto optimizer = engine::make_sgd({}, parts.model.parameters.values);
  engine::StepControl control = engine::first_control({});
  engine::DeviceWorkOptions options;
  options.device = kDevice;
  options.control = &control;
  options.image_table = engine::image_table(parts.set, io::Normalization::kUnit, kDevice);
  options.make_optimizer = [](const engine::FlatBuffer& values) {
    return engine::make_sgd({}, values);
  };
  const auto work = engine::make_device_work(parts.plan, parts.model, *optimizer, options);
  engine::StepPhases phases;
  EXPECT_THROW(work->step({.batch = parts.next_batch(), .scale = 1, .lr = 0.1}, phases),
               engine::Error);
}

// Returns a copy in host memory of what is on the device.
template <class T>
std::vector<T> on_device(const DeviceSamples& samples) {
  const engine::TensorView& view = samples.view().samples;
  std::vector<T> values(static_cast<std::size_t>(view.count()));
  const engine::cuda::Stream stream;
  engine::cuda::copy_async(values.data(), view.data, view.bytes(), stream.handle());
  stream.synchronize();
  return values;
}

TEST_F(DeviceSamplesCuda, TablesAndTextsAreCopiedWhole) {
  const std::vector<float> numbers{1, 2, 3, 4, 5, 6};
  const io::Dataset rows{.samples = io::FeatureSamples{.extents = {1, 1, 2}, .values = numbers},
                         .labels = io::ClassLabels{.ids = {0, 1, 0}, .count = 2}};
  const DeviceSamples table(rows, kDevice);
  EXPECT_EQ(table.view().samples.shape, (engine::Shape{3, 1, 1, 2}));
  EXPECT_FALSE(table.view().is_text());
  EXPECT_EQ(on_device<float>(table), numbers);
  EXPECT_EQ(DeviceSamples::bytes(rows), 24U);

  const std::vector<std::int32_t> tokens{5, 0, 7, 3, 3, 1, 2};
  const io::Dataset text{.samples = io::TokenSamples{.context = 2, .stride = 3, .tokens = tokens},
                         .labels = io::NextTokens{.count = 8}};
  const DeviceSamples stream(text, kDevice);
  EXPECT_EQ(stream.view().stride, 3);
  EXPECT_EQ(on_device<std::int32_t>(stream), tokens);
}

class NoImages : public io::ImageSource {
 public:
  void read(std::int64_t, io::SplitMix*, std::span<std::uint8_t>) const override {}
  void add_to(base::StreamDigest&) const override {}
};

TEST(DeviceSamples, ImagesOfFoldersStayInHostMemory) {
  EXPECT_EQ(DeviceSamples::obstacle({.samples = io::ImageSamples{}}), "");
  EXPECT_EQ(DeviceSamples::obstacle(
                {.samples = io::ImageSamples{.source = std::make_shared<NoImages>()}}),
            "images of a folder are decoded in host memory");
}

}  // namespace
