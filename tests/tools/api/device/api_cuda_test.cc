// Tests of models and trainings of the interface on CUDA devices.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <mutex>
#include <random>
#include <thread>

#include "engine/training.h"
#include "tests/support/command_words.h"
#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"
#include "tests/tools/api/expect_error.h"
#include "tests/tools/api/sum_rows.h"

namespace {

using namespace engine::api;
using api_test::rows;

// Before the devices are counted.
[[maybe_unused]] const int kDevices = setenv("ENGINE_EMULATED_GPUS", "2", 1);

std::chrono::milliseconds time_limit() { return test_support::deadline(std::chrono::seconds(60)); }

Model digits(int threads = 1) {
  return Model::build("convnet", {.sample = {12, 12, 1}, .classes = 10}, /*seed=*/4, threads);
}

std::vector<float> numbers(std::size_t count) {
  std::vector<float> values(count);
  std::mt19937 random(7);
  for (float& value : values) value = static_cast<float>(random() % 2001) / 1000 - 1;
  return values;
}

void expect_near(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 1e-4 * (1 + std::abs(expected[i]))) << i;
}

Training on(const std::string& device) {
  Training training;
  training.use(rows(1, 200), rows(2, 50));
  training.set("model", "mlp").set("batch-size", 20).set("lr", 0.1).set("epochs", 2);
  training.set("threads", 1).set("seed", 3).set("device", device);
  return training;
}

TEST(ApiOnDevices, AModelPredictsOnTheDeviceThatIsSet) {
  Model model = digits();
  EXPECT_EQ(model.device(), "cpu");
  const std::vector<float> images = numbers(70 * 12 * 12);  // two forward passes
  const std::vector<float> on_cpu = model.predict(images);
  for (const std::string device : {"cuda", "cuda:1"}) {
    model.set_device(device);
    EXPECT_EQ(model.device(), device == "cuda" ? "cuda:0" : device);
    const std::vector<float> on_device = model.predict(images);
    expect_near(on_device, on_cpu);
    EXPECT_EQ(model.predict(images), on_device);
  }
  model.set_device("cpu");
  EXPECT_EQ(model.predict(images), on_cpu);
}

TEST(ApiOnDevices, NewWeightsReachTheDevice) {
  Model model = digits();
  model.set_device("cuda");
  const std::vector<float> image = numbers(12 * 12);
  const std::vector<float> before = model.predict(image);
  std::vector<Tensor> tensors = model.tensors();
  for (Tensor& tensor : tensors)
    if (tensor.name.ends_with("weight"))
      for (float& value : tensor.values) value *= 0.5F;
  model.set_tensors(tensors);
  const std::vector<float> after = model.predict(image);
  EXPECT_NE(after, before);
  model.set_device("cpu");
  expect_near(after, model.predict(image));
}

TEST(ApiOnDevices, ATextModelAndAnotherThreadPredict) {
  Model model = Model::build("gpt-nano", {.sample = {8}, .classes = 11}, 0, 1);
  const std::vector<std::int32_t> tokens{1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1};
  const std::vector<float> on_cpu = model.predict(tokens);
  model.set_device("cuda:1");
  const std::vector<float> here = model.predict(tokens);
  expect_near(here, on_cpu);
  std::vector<float> there;
  std::thread([&] { there = model.predict(tokens); }).join();
  EXPECT_EQ(there, here);
}

TEST(ApiOnDevices, WhatIsNoDeviceIsRejectedAsByTheCommand) {
  Model model = digits();
  model.set_device("cuda:1");
  EXPECT_API_ERROR(model.set_device("gpu"), ConfigurationError, 78,
                   "device 'gpu'; auto, cpu, cuda, cuda:N");
  EXPECT_API_ERROR(model.set_device("cuda:2"), ConfigurationError, 78, "cuda:2 2 CUDA");
  EXPECT_EQ(model.device(), "cuda:1");
  run_threads(
      1,
      [](Group& group) {
        EXPECT_API_ERROR(on("cuda:2").run(group), ConfigurationError, 78,
                         "--device: there is no cuda:2, 2 CUDA devices are visible");
        EXPECT_API_ERROR(on("gpu").run(group), ConfigurationError, 78, "'gpu'");
        EXPECT_API_ERROR(static_cast<void>(on("cuda").device()), ConfigurationError, 78,
                         "device(): trained");
      },
      time_limit());
}

TEST(ApiOnDevices, AModelTooLargeForTheDeviceIsAnErrorOfMemory) {
  Model model = digits();
  model.set_device("cuda");
  setenv("ENGINE_EMULATED_MEMORY", "1000", 1);
  EXPECT_API_ERROR(model.predict(numbers(12 * 12)), ResourceError, 69, "memory");
  unsetenv("ENGINE_EMULATED_MEMORY");
  EXPECT_EQ(model.predict(numbers(12 * 12)).size(), 10U);
}

TEST(ApiOnDevices, RanksTrainEvaluateAndPredictOnTheirDevices) {
  std::mutex mutex;
  std::vector<std::string> devices(2);
  std::vector<std::vector<Tensor>> models(2);
  run_threads(
      2,
      [&](Group& group) {
        Training training = on("cuda");
        const TrainingResult result = training.run(group);
        ASSERT_TRUE(result.evaluation.has_value());
        EXPECT_GE(result.evaluation->accuracy, 0.9);
        Model model = training.model();
        EXPECT_EQ(model.device(), "cpu");
        const std::vector<float> row{0.4F, 0.5F};
        const std::vector<float> on_cpu = model.predict(row);
        model.set_device(training.device());
        expect_near(model.predict(row), on_cpu);
        const std::lock_guard lock(mutex);
        devices[static_cast<std::size_t>(group.rank())] = training.device();
        models[static_cast<std::size_t>(group.rank())] = model.tensors();
        EXPECT_NE(result.description.find(training.device()), std::string::npos)
            << result.description;
      },
      time_limit());
  EXPECT_EQ(devices, (std::vector<std::string>{"cuda:0", "cuda:1"}));
  ASSERT_EQ(models[0].size(), 6U);
  for (std::size_t i = 0; i < models[0].size(); ++i)
    EXPECT_EQ(models[0][i].values, models[1][i].values) << models[0][i].name;
}

// The same options make the same bits as the program.
TEST(ApiOnDevices, EqualsTheProgram) {
  const test_support::TemporaryDirectory folder;
  const test_support::CommandResult program = test_support::engine(test_support::argv(
      "train --model mlp --dataset synthetic --synthetic-shape 5x4x3 --synthetic-size 40 "
      "--steps 4 --batch-size 8 --threads 1 --device cuda --amp bf16 --seed 5 --save-dir",
      folder / "program"));
  ASSERT_EQ(program.exit_code, 0) << program.err;
  run_threads(
      1,
      [&](Group& group) {
        Training training;
        training.set("model", "mlp").set("dataset", "synthetic").set("synthetic-shape", "5x4x3");
        training.set("synthetic-size", 40)
            .set("steps", 4)
            .set("batch-size", 8)
            .set("threads", 1)
            .set("seed", 5);
        training.set("device", "cuda").set("amp", "bf16").set("save-dir", folder / "library");
        EXPECT_EQ(training.run(group).folder, folder / "library");
        EXPECT_EQ(training.device(), "cuda:0");
      },
      time_limit());
  const test_support::CommandResult same =
      test_support::engine({"verify", folder / "program", folder / "library"});
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
}

}  // namespace
