// mingpt: PyTorch's names, shapes, initial values, logits and losses (gpt_reference.txt;
// gpt_reference.py writes it and defines the formulas used here), the tied output layer, dropout,
// and the next token of a short text.
#include "models/mingpt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "engine/ops/common/bf16_dispatch.h"
#include "engine/optim/optimizer.h"
#include "models/model_catalog.h"
#include "models/next_token.h"
#include "tests/engine/optim/typed_optimizers.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

using engine::DType;
using engine::Graph;
using engine::ModelState;
using engine::NodeId;
using engine::Shape;

// The numbers of the lines of gpt_reference.txt that start with "KIND KEY".
std::vector<double> reference(const std::string& kind, const std::string& key) {
  std::istringstream text(test_support::read_text(test_support::source_directory() +
                                                  "/tests/models/gpt_reference.txt"));
  std::vector<double> numbers;
  for (std::string line, a, b, number; std::getline(text, line);) {
    std::istringstream words(line);
    if (words >> a >> b && a == kind && b == key)
      while (words >> number) numbers.push_back(std::stod(number));
  }
  return numbers;
}

// Own parameters of all nodes in model order, without memory for them.
std::vector<std::string> parameter_lines(const Graph& graph) {
  std::vector<std::string> lines;
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id)
    for (const engine::ParameterSpec& spec : graph.own_parameters(id))
      lines.push_back(graph.nodes()[static_cast<std::size_t>(id)].name + "." + spec.name + " " +
                      spec.layout.file_shape.to_string());
  return lines;
}

std::int64_t parameter_count(const Graph& graph) {
  std::int64_t count = 0;
  for (const engine::OrderedParameter& parameter : engine::completion_order(graph, DType::kF32))
    count += parameter.layout.layout.file_shape.count();
  return count;
}

class GptPreset : public testing::TestWithParam<std::pair<const char*, std::int64_t>> {};

TEST_P(GptPreset, HasPyTorchsStateDictWithTheTiedWeightOnce) {
  const auto [name, count] = GetParam();
  const Graph graph = models::build_model(name, models::default_options(name));
  std::istringstream text(
      test_support::read_text(test_support::source_directory() + "/tests/models/state_dicts.txt"));
  std::vector<std::string> stored;
  const std::string mark = std::string(name == std::string("mingpt") ? "gpt-nano" : name) + " ";
  for (std::string line; std::getline(text, line);)
    if (line.starts_with(mark)) stored.push_back(line.substr(mark.size()));
  EXPECT_FALSE(stored.empty());
  std::vector<std::string> found =
      parameter_lines(graph);  // in minGPT's order: of a block ln_1, attn, ln_2, mlp
  std::sort(found.begin(), found.end());
  std::sort(stored.begin(), stored.end());
  EXPECT_EQ(found, stored);
  EXPECT_EQ(parameter_count(graph), count);
}

INSTANTIATE_TEST_SUITE_P(All, GptPreset,
                         testing::Values(std::pair{"mingpt", std::int64_t{809'856}},
                                         std::pair{"gpt-nano", std::int64_t{809'856}},
                                         std::pair{"gpt-mini", std::int64_t{2'706'624}},
                                         std::pair{"gpt2", std::int64_t{124'439'808}}),
                         [](const auto& preset) {
                           return test_support::test_name(preset.param.first);
                         });

TEST(MinGpt, TakesVocabularyAndContextFromTheData) {
  const Graph graph = models::build_model("gpt-nano", {.sample_shape = {32}, .classes = 100});
  EXPECT_EQ(parameter_lines(graph)[0], "transformer.wte.weight [100, 128]");
  EXPECT_EQ(parameter_lines(graph)[1], "transformer.wpe.weight [32, 128]");
  EXPECT_EQ(graph.nodes()[static_cast<std::size_t>(graph.logits())].shape, (Shape{32, 100}));
}

TEST(MinGpt, RefusesImagesAndDropoutOfOtherModels) {
  const auto error_of = [](const std::string& name,
                           const models::ModelOptions& options) -> std::string {
    try {
      models::build_model(name, options);
    } catch (const engine::ModelError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_VALUES(error_of("gpt-nano", {.sample_shape = {28, 28, 1}}),
                "token ids, [context], [28, 28, 1]: --dataset synthetic --synthetic-shape N");
  EXPECT_NE(error_of("mlp", {.sample_shape = {28, 28, 1}, .dropout = 0.1}).find("dropout 0.1"),
            std::string::npos);
  EXPECT_EQ(error_of("gpt-nano", {.sample_shape = {16}, .dropout = 0.1}), "no error");
  EXPECT_NE(error_of("gpt-nano", {.sample_shape = {16}, .dropout = 1}), "no error");
}

TEST(MinGpt, InitialValuesAreGpt2s) {
  const Graph graph = models::build_model("gpt-nano", models::default_options("gpt-nano"));
  ModelState state = ModelState::allocate(graph, DType::kF32);
  state.initialize(graph, 3);
  for (const ModelState::Entry& entry : state.entries) {
    const auto values = state.view(entry).span<float>();
    double sum = 0, squares = 0;
    for (const float value : values) sum += value, squares += double{value} * value;
    const auto n = static_cast<double>(values.size());
    if (state.layout(entry).file_shape.rank() == 2) {
      const double deviation = entry.name.ends_with("c_proj.weight") ? 0.02 / std::sqrt(8.0) : 0.02;
      EXPECT_NEAR(sum / n / deviation, 0, 4 / std::sqrt(n)) << entry.name;
      EXPECT_NEAR(squares / n / (deviation * deviation), 1, 6 / std::sqrt(n)) << entry.name;
    } else {
      EXPECT_EQ(sum, entry.name.ends_with("bias") ? 0 : n) << entry.name;
    }
  }
}

constexpr std::int64_t kTexts = 3, kContext = 64, kVocabulary = 65;

// A model, filled by the formula, with the batch of the reference.
struct Setting {
  Graph graph;
  engine::Plan plan;
  ModelState state;
  engine::ThreadPool threads;
  engine::Executor executor;
  std::vector<std::int32_t> tokens, labels;
  std::vector<std::int64_t> ids;

  Setting(DType dtype, Graph the_graph, int thread_count = 1)
      : graph(std::move(the_graph)),
        plan(engine::Plan::compile(graph,
                                   {.max_batch = kTexts, .dtype = dtype, .threads = thread_count})),
        state(ModelState::allocate(graph, dtype)),
        threads(thread_count),
        executor(plan, state, threads, 0) {
    for (std::int64_t i = 0; i < kTexts * kContext; ++i) {
      tokens.push_back(static_cast<std::int32_t>((i * i + 31 * i) % kVocabulary));
      labels.push_back(static_cast<std::int32_t>((7 * i + 3) % kVocabulary));
    }
    for (std::int64_t i = 0; i < kTexts; ++i) ids.push_back(i);
    dtype == DType::kF64 ? fill<double>() : fill<float>();
  }

  // Samples [first, first + n).
  engine::BatchView batch(std::int64_t first = 0, std::int64_t n = kTexts) const {
    const auto part = [&](const auto& all, std::int64_t items) {
      return std::span(all).subspan(static_cast<std::size_t>(first * items),
                                    static_cast<std::size_t>(n * items));
    };
    return {.count = n,
            .samples = {},
            .tokens = part(tokens, kContext),
            .labels = part(labels, kContext),
            .sample_ids = part(ids, 1)};
  }

  template <class T>
  void fill() {
    std::int64_t k = 0;
    for (const ModelState::Entry& entry : state.entries) {
      const Shape& shape = state.layout(entry).file_shape;
      const bool matrix = shape.rank() > 1;
      const double fan_in = matrix ? static_cast<double>(shape[1]) : 1,
                   offset = !matrix && entry.name.ends_with("weight") ? 1 : 0;
      const auto values = state.view(entry).span<T>();
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double u =
            static_cast<double>((static_cast<std::int64_t>(i) * 7919 + 131 * k) % 1009) / 1009 -
            0.5;
        values[i] = static_cast<T>(u / std::sqrt(fan_in) * (matrix ? 2.0 : 0.2) + offset);
      }
      ++k;
    }
  }

  double logit(std::size_t sample, std::size_t position, std::size_t token) const {
    const engine::TensorView all = executor.logits();
    const std::size_t i = (sample * kContext + position) * kVocabulary + token;
    return all.dtype == DType::kF64 ? all.span<double>()[i] : all.span<float>()[i];
  }

  std::vector<double> train(int steps, double weight_decay) {
    const auto optimizer =
        engine::make_sgd({.momentum = 0.9, .weight_decay = weight_decay, .nesterov = false},
                         state.parameters.values);
    engine::KernelContext context{.device = {}, .threads = &threads, .scratch = {}};
    std::vector<double> losses;
    for (int step = 0; step < steps; ++step) {
      losses.push_back(executor.forward(batch(), true).loss_sum / (kTexts * kContext));
      executor.backward(1.0 / (kTexts * kContext), engine::Write::kOverwrite, {});
      optimizer->step(context, 0.05, 1, state.parameters.gradients, state.parameters.values);
    }
    return losses;
  }
};

Graph nano(double dropout = 0) {
  return models::build_model(
      "gpt-nano", {.sample_shape = {kContext}, .classes = kVocabulary, .dropout = dropout});
}

TEST(MinGpt, LogitsOfGivenWeightsArePyTorchs) {
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::kF64, 1e-12}, std::pair{DType::kF32, 1e-5}}) {
    Setting s(dtype, nano(), 2);
    s.executor.forward(s.batch(), false);
    for (const std::size_t position : {0, 17, 63}) {
      const std::vector<double> expected = reference("logits", std::to_string(position));
      ASSERT_EQ(expected.size(), static_cast<std::size_t>(kVocabulary));
      for (std::size_t token = 0; token < expected.size(); ++token)
        ASSERT_NEAR(s.logit(2, position, token), expected[token], tolerance)
            << "position " << position << ", token " << token;
    }
  }
}

TEST(MinGpt, LossesOfTrainingArePyTorchsWithAndWithoutWeightDecay) {
  for (const auto& [decay, key] : {std::pair{0.0, "0.0"}, std::pair{0.1, "0.1"}}) {
    const std::vector<double> expected = reference("losses", key);
    ASSERT_EQ(expected.size(), 4U);
    Setting wide(DType::kF64, nano()), single(DType::kF32, nano());
    const std::vector<double> found = wide.train(4, decay), narrow = single.train(4, decay);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(found[i], expected[i], 1e-12 * expected[i]) << "step " << i;
      EXPECT_NEAR(narrow[i], expected[i], 1e-6 * expected[i]) << "step " << i;
    }
  }
}

// Half a batch on each of two ranks gives the same sum of gradients, with dropout too.
TEST(MinGpt, GradientsDoNotDependOnHowTheBatchIsSplit) {
  Setting s(DType::kF64, nano(0.1));
  const auto gradients_of = [&](std::int64_t first, std::int64_t n, engine::Write write) {
    s.executor.forward(s.batch(first, n), true);
    s.executor.backward(1, write, {});
    const auto all = s.state.parameters.gradients.span<double>();
    return std::vector<double>(all.begin(), all.end());
  };
  const std::vector<double> whole = gradients_of(0, 3, engine::Write::kOverwrite);
  gradients_of(0, 1, engine::Write::kOverwrite);
  const std::vector<double> parts = gradients_of(1, 2, engine::Write::kAdd);
  ASSERT_EQ(whole.size(), parts.size());
  for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(parts[i], whole[i], 1e-11) << i;
}

TEST(MinGpt, DropoutIsOffInInferenceAndOnInTraining) {
  Setting with(DType::kF32, nano(0.1)), without(DType::kF32, nano());
  without.executor.forward(without.batch(), false);
  with.executor.forward(with.batch(), false);
  EXPECT_EQ(with.logit(1, 20, 3), without.logit(1, 20, 3));
  EXPECT_NE(with.executor.forward(with.batch(), true).loss_sum,
            without.executor.forward(without.batch(), true).loss_sum);
}

TEST(MinGpt, ShorterSamplesUseTheSameState) {
  Setting s(DType::kF64, nano());
  const Graph shorter = models::build_gpt({.size = {},
                                           .vocabulary = kVocabulary,
                                           .context = kContext,
                                           .positions = 10,
                                           .dropout = 0,
                                           .label_smoothing = 0});
  EXPECT_EQ(parameter_lines(shorter), parameter_lines(s.graph));
  s.executor.forward(s.batch(), false);
  models::NextToken next(shorter, s.state, s.threads);
  const auto logits = next.logits_after(std::span(s.tokens).first(7));
  for (std::size_t token = 0; token < logits.size(); ++token)
    ASSERT_NEAR(logits[token], s.logit(0, 6, token), 1e-12);
}

TEST(NextToken, IsThatOfTheWholeSampleAtItsLastPosition) {
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    Setting s(dtype, nano());
    s.executor.forward(s.batch(), false);
    models::NextToken next(s.graph, s.state, s.threads);
    EXPECT_EQ(next.context(), kContext);
    EXPECT_EQ(next.vocabulary(), kVocabulary);
    for (const std::size_t length : {1, 2, 33, 64}) {
      const auto logits = next.logits_after(std::span(s.tokens).first(length));
      for (std::size_t token = 0; token < logits.size(); ++token)
        ASSERT_NEAR(logits[token], s.logit(0, length - 1, token), 1e-5) << length;
    }
    const std::vector<double> last(next.logits_after(std::span(s.tokens).first(64)).begin(),
                                   next.logits_after(std::span(s.tokens).first(64)).end());
    std::vector<std::int32_t> longer(30, 1);
    longer.insert(longer.end(), s.tokens.begin(), s.tokens.begin() + 64);
    const auto of_longer = next.logits_after(longer);
    EXPECT_EQ(std::vector<double>(of_longer.begin(), of_longer.end()), last);
  }
}

TEST(NextToken, MayMultiplyInBf16) {
  if (const std::string missing = engine::ops::missing_bf16_products(); !missing.empty())
    GTEST_SKIP() << missing;
  Setting s(DType::kF32, nano());
  models::NextToken exact(s.graph, s.state, s.threads),
      rounded(s.graph, s.state, s.threads, {.products = engine::Products::kBF16});
  const auto expected = exact.logits_after(s.tokens), found = rounded.logits_after(s.tokens);
  double largest = 0, difference = 0;
  for (std::size_t token = 0; token < expected.size(); ++token) {
    largest = std::max(largest, std::abs(expected[token]));
    difference = std::max(difference, std::abs(expected[token] - found[token]));
  }
  EXPECT_GT(difference, 1e-5 * largest);
  EXPECT_LT(difference, 3e-2 * largest);
}

TEST(NextToken, RefusesWhatItCannotRead) {
  Setting s(DType::kF32, nano());
  models::NextToken next(s.graph, s.state, s.threads);
  EXPECT_THROW(next.logits_after({}), engine::InputError);
  EXPECT_THROW(next.logits_after(std::vector<std::int32_t>{1, 65}), engine::InputError);
  const Graph mlp = models::build_model("mlp", models::default_options("mlp"));
  ModelState state = ModelState::allocate(mlp, DType::kF32);
  EXPECT_THROW(models::NextToken(mlp, state, s.threads), engine::ModelError);
}

}  // namespace
