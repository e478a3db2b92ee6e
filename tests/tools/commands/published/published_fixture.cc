// The engine's executor and optimizer on the models of folders.
#include "tests/tools/commands/published/published_fixture.h"
#include "tests/engine/optim/typed_optimizers.h"
#include "tests/support/array_numbers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "engine/graph/executor.h"
#include "engine/optim/optimizer.h"
#include "engine/train/saving/weights.h"
#include "io/interchange/array_files.h"

namespace published {
namespace {

namespace fs = std::filesystem;

constexpr double kLearningRate = 0.003, kDecay = 0.05;  // those of published_models.py

std::string folder_of_tests() {
  return test_support::source_directory() + "/tests/tools/commands/published";
}

std::vector<std::int32_t> narrow(std::span<const std::int64_t> ids) {
  return {ids.begin(), ids.end()};
}

}  // namespace

std::string golden_file(const std::string& name) { return folder_of_tests() + "/data/" + name; }

std::string copy_of(const std::string& name, const test_support::TemporaryDirectory& folder) {
  const std::string model = folder / name;
  fs::create_directory(model);
  fs::copy_file(golden_file(name + ".json"), model + "/config.json");
  fs::copy_file(golden_file(name + ".safetensors"), model + "/model.safetensors");
  return model;
}

std::string token_file(std::size_t count) {
  std::string header =
      "{'descr': '<u2', 'fortran_order': False, 'shape': (" + std::to_string(count) + ",), }";
  header.resize(117, ' ');
  std::string text = std::string("\x93NUMPY\x01\0", 8) + '\x76' + '\0' + header + '\n';
  for (std::size_t i = 0; i < count; ++i) {
    text += static_cast<char>(i * i % 11);
    text += '\0';
  }
  return text;
}

test_support::CommandResult call_transformers(const std::vector<std::string>& arguments) {
  const char* python = std::getenv("PEER_PYTHON");
  std::vector<std::string> command{python != nullptr && *python != 0 ? python : "python3",
                                   folder_of_tests() + "/published_models.py"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return test_support::run_command(command, {}, 900'000);
}

bool is_missing(const test_support::CommandResult& result) {
  return result.exit_code == 77 || result.exit_code == 127;
}

PublishedNetwork::PublishedNetwork(const std::string& folder, std::int64_t length,
                                   engine::DType type)
    : positions(length),
      dtype(type),
      graph(models::build_model(
          folder,
          {.sample_shape = engine::Shape{length},
           .classes = models::token_counts(folder).value_or(models::TokenCounts()).vocabulary,
           .definition = models::model_definition(folder)})),
      state(engine::ModelState::allocate(graph, type)) {
  state.initialize(graph, 0);
  const models::ModelWeights weights = models::model_weights(folder);
  EXPECT_TRUE(weights.heads.empty());
  EXPECT_TRUE(engine::import_state(weights.arrays, folder, /*exact=*/false, state).empty());
}

std::vector<double> PublishedNetwork::logits(const std::vector<std::int64_t>& tokens) {
  const std::int64_t count = std::ssize(tokens) / positions;
  const engine::Plan plan =
      engine::Plan::compile(graph, {.max_batch = count, .dtype = dtype, .training = false});
  engine::ThreadPool threads(1);
  engine::Executor executor(plan, state, threads, 0);
  const std::vector<std::int32_t> ids = narrow(tokens), labels(ids.size());
  executor.forward(
      {.count = count, .samples = {}, .tokens = ids, .labels = labels, .sample_ids = {}}, false);
  if (dtype == engine::DType::kF64) {
    const auto found = executor.logits().span<double>();
    return {found.begin(), found.end()};
  }
  const auto found = executor.logits().span<float>();
  return {found.begin(), found.end()};
}

std::vector<double> PublishedNetwork::losses(const std::vector<std::int64_t>& batches,
                                             const std::vector<std::int64_t>& labels) {
  constexpr std::size_t kSteps = 20;
  const std::size_t each = batches.size() / kSteps;
  const std::int64_t count = static_cast<std::int64_t>(each) / positions;
  const engine::Plan plan = engine::Plan::compile(
      graph, {.max_batch = count, .dtype = dtype, .threads = 1, .training = true});
  engine::ThreadPool threads(1);
  engine::Executor executor(plan, state, threads, 0);
  engine::KernelContext context;
  context.threads = &threads;
  const auto optimizer = engine::make_adamw({.weight_decay = kDecay}, state.parameters.values);
  const std::vector<std::int64_t> sample_ids(static_cast<std::size_t>(count));
  std::vector<double> losses;
  for (std::size_t step = 0; step < kSteps; ++step) {
    const std::vector<std::int32_t> ids = narrow(std::span(batches).subspan(step * each, each)),
                                    wanted = narrow(std::span(labels).subspan(step * each, each));
    const engine::BatchResult result = executor.forward(
        {.count = count, .samples = {}, .tokens = ids, .labels = wanted, .sample_ids = sample_ids},
        true);
    const auto rows = static_cast<double>(each);
    losses.push_back(result.loss_sum / rows);
    executor.backward(1 / rows, engine::Write::kOverwrite, {});
    optimizer->step(context, kLearningRate, 1, state.parameters.gradients, state.parameters.values);
  }
  return losses;
}

void expect_numbers_of(const std::string& folder, const std::string& npz) {
  const std::vector<io::NamedArray> expected = io::load_arrays(npz);
  const auto tokens = test_support::numbers_of<std::int64_t>(expected, "tokens");
  const auto logits = test_support::numbers_of<double>(expected, "logits");
  const std::int64_t positions = std::ssize(tokens) / 2;
  const std::vector<double> found =
      PublishedNetwork(folder, positions, engine::DType::kF32).logits(tokens);
  ASSERT_EQ(found.size(), logits.size());
  double largest = 0, difference = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    largest = std::max(largest, std::abs(logits[i]));
    difference = std::max(difference, std::abs(found[i] - logits[i]));
  }
  EXPECT_GT(largest, 0.1);
  EXPECT_LE(difference, 1e-5 * largest);
  const auto losses = test_support::numbers_of<double>(expected, "losses");
  const std::vector<double> own =
      PublishedNetwork(folder, positions, engine::DType::kF64)
          .losses(test_support::numbers_of<std::int64_t>(expected, "batches"),
                  test_support::numbers_of<std::int64_t>(expected, "labels"));
  ASSERT_EQ(own.size(), losses.size());
  double stray = 0;
  for (std::size_t i = 0; i < losses.size(); ++i)
    stray = std::max(stray, std::abs(own[i] - losses[i]));
  EXPECT_LE(stray, 1e-9);
  EXPECT_LT(losses.back(), losses.front());
  std::printf("%s: logits differ by %.1e of the largest, losses by %.1e\n", folder.c_str(),
              difference / largest, stray);
}

}  // namespace published
