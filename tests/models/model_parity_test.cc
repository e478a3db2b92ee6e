// A few steps of every built-in model in float64 against PyTorch's losses from the same weights and
// samples (reference_losses.txt; pytorch_reference.py writes it and defines the formulas used
// here).
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "engine/graph/executor.h"
#include "models/model_catalog.h"
#include "tests/support/test_support.h"

namespace {

using engine::ModelState;

constexpr std::int64_t kCount = 4;
constexpr double kRate = 0.01;

template <class T>
void fill_by_formula(ModelState& state) {
  std::int64_t k = 0;
  for (const ModelState::Entry& entry : state.entries) {
    if (entry.kind != ModelState::Kind::kParameter) continue;
    const engine::TensorLayout& layout = state.layout(entry);
    const bool matrix = layout.file_shape.rank() > 1;
    const double fan_in =
        matrix ? static_cast<double>(layout.file_shape.count() / layout.file_shape[0]) : 1;
    const double offset = !matrix && entry.name.ends_with("weight") ? 1 : 0;
    std::vector<T> file(static_cast<std::size_t>(layout.file_shape.count()));
    for (std::size_t i = 0; i < file.size(); ++i) {
      const double u =
          static_cast<double>((static_cast<std::int64_t>(i) * 7919 + 131 * k) % 1009) / 1009 - 0.5;
      file[i] = static_cast<T>(u / std::sqrt(fan_in) * (matrix ? 2.0 : 0.2) + offset);
    }
    layout.to_memory(file.data(), state.view(entry).data, sizeof(T));
    ++k;
  }
}

void fill_running_statistics(ModelState& state) {
  for (const ModelState::Entry& entry : state.entries) {
    if (entry.kind != ModelState::Kind::kRunning) continue;
    const bool mean = entry.name.ends_with("running_mean");
    const auto values = state.view(entry).span<float>();
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = mean ? static_cast<float>(i * 31 % 17) / 17.0F - 0.5F
                       : 1 + static_cast<float>(i * 13 % 7) / 7.0F;
  }
}

struct TestBatch {
  std::vector<float> samples;
  std::vector<std::int32_t> labels{0, 3, 6, 9};
  std::vector<std::int64_t> ids{0, 1, 2, 3};

  explicit TestBatch(const engine::Shape& sample) {
    for (std::int64_t i = 0; i < kCount * sample.count(); ++i)
      samples.push_back(static_cast<float>((i * i + 31 * i) % 256) / 255.0F);
  }
  engine::BatchView view() const {
    return {.count = kCount, .samples = samples, .labels = labels, .sample_ids = ids};
  }
};

// The losses of the training steps, then of the trained model in inference mode.
std::vector<double> losses(const std::string& name, const engine::Shape& sample, int steps) {
  const engine::Graph graph = models::build_model(
      name, {.sample_shape = sample, .classes = models::default_options(name).classes});
  const engine::Plan plan = engine::Plan::compile(
      graph, {.max_batch = kCount, .dtype = engine::DType::kF64, .threads = 2});
  ModelState state = ModelState::allocate(graph, engine::DType::kF64);
  state.initialize(graph, 0);
  fill_by_formula<double>(state);
  const TestBatch batch(sample);
  engine::ThreadPool threads(2);
  engine::Executor executor(plan, state, threads, 0);
  std::vector<double> result;
  for (int step = 0; step < steps; ++step) {
    result.push_back(executor.forward(batch.view(), true).loss_sum / kCount);
    executor.backward(1.0 / kCount, engine::Write::kOverwrite, {});
    const auto values = state.parameters.values.span<double>(),
               gradients = state.parameters.gradients.span<double>();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] -= kRate * gradients[i];
  }
  result.push_back(executor.forward(batch.view(), false).loss_sum / kCount);
  return result;
}

// The first ten logits of each sample in inference mode, in float32.
std::vector<double> logits(const std::string& name, const engine::Shape& sample) {
  const engine::Graph graph = models::build_model(
      name, {.sample_shape = sample, .classes = models::default_options(name).classes});
  const engine::Plan plan = engine::Plan::compile(graph, {.max_batch = kCount, .training = false});
  ModelState state = ModelState::allocate(graph, engine::DType::kF32);
  state.initialize(graph, 0);
  fill_by_formula<float>(state);
  fill_running_statistics(state);
  const TestBatch batch(sample);
  engine::ThreadPool threads(1);
  engine::Executor executor(plan, state, threads, 0);
  executor.forward(batch.view(), false);
  std::vector<double> result;
  const engine::TensorView all = executor.logits();
  for (std::int64_t row = 0; row < kCount; ++row)
    for (std::int64_t c = 0; c < 10; ++c) result.push_back(all.as<float>()[row * all.shape[1] + c]);
  return result;
}

// The numbers behind the model's name in a file beside this one.
std::vector<double> stored(const std::string& file, const std::string& model) {
  std::istringstream text(
      test_support::read_text(test_support::source_directory() + "/tests/models/" + file));
  std::vector<double> values;
  for (std::string line, word; std::getline(text, line);) {
    std::istringstream words(line);
    if (words >> word && word == model)
      while (words >> word) values.push_back(std::stod(word));
  }
  return values;
}

struct Reference {
  const char* name;
  engine::Shape sample;
  double tolerance;  // relative
};
void PrintTo(const Reference& reference, std::ostream* out) {
  *out << reference.name;
}  // for the test library

class ModelParity : public testing::TestWithParam<Reference> {};

TEST_P(ModelParity, AgreesWithPyTorchInDoublePrecision) {
  const Reference& reference = GetParam();
  const std::vector<double> expected = stored("reference_losses.txt", reference.name);
  ASSERT_EQ(expected.size(), 4U);
  const std::vector<double> found = losses(reference.name, reference.sample, 3);
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], reference.tolerance * expected[i]) << "step " << i;
}

TEST_P(ModelParity, LogitsOfGivenWeightsAgreeInSinglePrecision) {
  const Reference& reference = GetParam();
  const std::vector<double> expected = stored("reference_logits.txt", reference.name);
  const std::vector<double> found = logits(reference.name, reference.sample);
  ASSERT_EQ(expected.size(), 40U);
  ASSERT_EQ(found.size(), 40U);
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 1e-5 * largest) << "logit " << i;
}

INSTANTIATE_TEST_SUITE_P(All, ModelParity,
                         testing::Values(Reference{"mlp", {28, 28, 1}, 1e-12},
                                         Reference{"convnet", {28, 28, 1}, 1e-11},
                                         Reference{"resnet18", {40, 40, 3}, 1e-9},
                                         Reference{"resnet50", {40, 40, 3}, 1e-9},
                                         Reference{"resnet18-cifar", {8, 8, 3}, 1e-9},
                                         Reference{"resnet20-cifar", {9, 9, 3}, 1e-9},
                                         Reference{"pyramidnet110", {10, 10, 3}, 1e-9}),
                         [](const auto& reference) {
                           return test_support::test_name(reference.param.name);
                         });

}  // namespace
