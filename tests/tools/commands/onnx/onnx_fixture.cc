// Draws by SplitMix64, the engine's executor, and a call of Python.
#include "tests/tools/commands/onnx/onnx_fixture.h"
#include "tests/support/command_words.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "engine/graph/executor.h"
#include "engine/train/saving/weights.h"
#include "io/base/numbers/split_mix.h"
#include "io/interchange/numpy/npz.h"
#include "tests/support/test_support.h"

namespace onnx_fixture {
using test_support::expect_success;

namespace {

float uniform(io::SplitMix& random) {
  return static_cast<float>(random.next() >> 40) / static_cast<float>(1 << 23) - 1;
}

models::ModelOptions options_of(const std::string& path, bool is_regression) {
  models::ModelOptions options = models::default_options(path);
  if (is_regression) options.regression = engine::ops::RegressionLoss::kSquared;
  return options;
}

std::vector<float> run(const engine::Graph& graph, engine::ModelState& state,
                       const engine::BatchView& batch) {
  const engine::Plan plan =
      engine::Plan::compile(graph, {.max_batch = batch.count, .training = false});
  engine::ThreadPool threads(1);
  engine::Executor executor(plan, state, threads, 0);
  executor.forward(batch, false);
  const auto logits = executor.logits().span<float>();
  return {logits.begin(), logits.end()};
}

std::int64_t labels_of(const engine::Graph& graph, std::int64_t count) {
  return count * graph.nodes().at(1).shape.count();
}

io::NamedArray array(const std::string& name, io::DType type, std::vector<std::int64_t> shape,
                     std::span<const std::byte> data) {
  return {.name = name,
          .section = io::Section::kParameter,
          .type = type,
          .shape = std::move(shape),
          .data = {data.begin(), data.end()}};
}

}  // namespace

std::string peer_python() {
  const char* python = std::getenv("PEER_PYTHON");
  return python != nullptr && *python != 0 ? python : "python3";
}

Network::Network(const std::string& path, engine::DType dtype, bool is_regression)
    : options(options_of(path, is_regression)),
      graph(models::build_model(path, options)),
      state(engine::ModelState::allocate(graph, dtype)) {
  state.initialize(graph, 0);
  const models::ModelWeights weights = models::model_weights(path);
  left_out = engine::import_state(weights.arrays, path, /*exact=*/false, state);
}

engine::ModelState random_state(const engine::Graph& graph) {
  engine::ModelState state = engine::ModelState::allocate(graph, engine::DType::kF32);
  state.initialize(graph, 7);
  io::SplitMix random(11, 0);
  for (const engine::ModelState::Entry& entry : state.entries) {
    if (entry.kind == engine::ModelState::Kind::kCounter ||
        state.layout(entry).file_shape.rank() > 1)
      continue;
    const bool around_one = entry.name.ends_with("running_var") || entry.name.ends_with("weight");
    for (float& value : state.view(entry).span<float>())
      value = around_one ? 1 + uniform(random) / 2 : uniform(random) / 5;
  }
  return state;
}

std::vector<float> random_samples(std::int64_t count, std::uint64_t seed) {
  io::SplitMix random(seed, 0);
  std::vector<float> samples(static_cast<std::size_t>(count));
  for (float& value : samples) value = uniform(random);
  return samples;
}

std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t vocabulary,
                                        std::uint64_t seed) {
  io::SplitMix random(seed, 0);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (std::int32_t& token : tokens)
    token = static_cast<std::int32_t>(random.next() % static_cast<std::uint64_t>(vocabulary));
  return tokens;
}

namespace {

// Transposes each sample, a matrix of `rows`.
std::vector<float> transposed(const std::vector<float>& samples, std::size_t rows,
                              std::size_t columns) {
  std::vector<float> turned(samples.size());
  for (std::size_t first = 0; first < samples.size(); first += rows * columns)
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t c = 0; c < columns; ++c)
        turned[first + c * rows + r] = samples[first + r * columns + c];
  return turned;
}

std::size_t pixels_of(const engine::Shape& item) {
  return static_cast<std::size_t>(item[0] * item[1]);
}

}  // namespace

std::vector<float> channels_first(const std::vector<float>& samples, const engine::Shape& item) {
  return transposed(samples, pixels_of(item), static_cast<std::size_t>(item[2]));
}

std::vector<float> channels_last(const std::vector<float>& samples, const engine::Shape& item) {
  return transposed(samples, static_cast<std::size_t>(item[2]), pixels_of(item));
}

std::vector<float> logits_of_images(const engine::Graph& graph, engine::ModelState& state,
                                    std::int64_t count, const std::vector<float>& samples) {
  const std::vector<std::int32_t> labels(static_cast<std::size_t>(labels_of(graph, count)));
  return run(graph, state,
             {.count = count, .samples = samples, .labels = labels, .sample_ids = {}});
}

std::vector<float> logits_of_tokens(const engine::Graph& graph, engine::ModelState& state,
                                    std::int64_t count, const std::vector<std::int32_t>& tokens) {
  const std::vector<std::int32_t> labels(static_cast<std::size_t>(labels_of(graph, count)));
  return run(graph, state,
             {.count = count, .samples = {}, .tokens = tokens, .labels = labels, .sample_ids = {}});
}

io::NamedArray floats(const std::string& name, const std::vector<float>& values,
                      std::vector<std::int64_t> shape) {
  return array(name, io::DType::kF32, std::move(shape), std::as_bytes(std::span(values)));
}

io::NamedArray integers(const std::string& name, const std::vector<std::int32_t>& values,
                        std::vector<std::int64_t> shape) {
  const std::vector<std::int64_t> wide(values.begin(), values.end());
  return array(name, io::DType::kI64, std::move(shape), std::as_bytes(std::span(wide)));
}

std::string python_is_missing() {
  const std::string python = peer_python();
  const test_support::CommandResult found =
      test_support::run_command({python, "-c", "import onnx, onnxruntime, numpy"}, {}, 300'000);
  if (found.exit_code != 1 && found.exit_code != 127) return "";
  return python + " has no onnx, onnxruntime and numpy: set PEER_PYTHON to one that has";
}

test_support::CommandResult compare_in_onnxruntime(const std::string& model_path,
                                                   const std::vector<io::NamedArray>& cases) {
  const std::string expected = model_path + ".npz";
  io::save_npz(cases, expected);
  return test_support::run_command(
      {peer_python(), test_support::source_directory() + "/tests/tools/commands/onnx/onnx_check.py",
       model_path, expected},
      {}, 300'000);
}

void expect_equal_in_onnxruntime(const std::string& model_path,
                                 const std::vector<io::NamedArray>& cases) {
  const test_support::CommandResult result =
      expect_success(compare_in_onnxruntime(model_path, cases));
  std::printf("%s", result.out.c_str());
}

std::string missing_after_script(const std::string& script, const std::string& folder,
                                 const std::vector<std::string>& more) {
  std::vector<std::string> words{
      peer_python(), test_support::source_directory() + "/tests/tools/commands/onnx/" + script,
      folder};
  words.insert(words.end(), more.begin(), more.end());
  const test_support::CommandResult made = test_support::run_command(words, {}, 600'000);
  if (made.exit_code == 77 || made.exit_code == 127)
    return peer_python() + " has no torch, onnx or onnxscript";
  EXPECT_EQ(made.exit_code, 0) << made.out << made.err;
  return "";
}

}  // namespace onnx_fixture
