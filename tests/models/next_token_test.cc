// The next token of texts that grow: keys and values that are kept give the logits of the whole
// context.
#include "models/next_token.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "io/base/numbers/half.h"
#include "models/model_catalog.h"
#include "tests/support/test_support.h"

namespace {

using engine::DType;
using engine::Graph;
using engine::ModelState;

constexpr std::int64_t kPositions = 24, kTokens = 31;
constexpr models::NextToken::Tokens kNone{};

// Every layer that models of text may have, with a gated branch as in SwiGLU.
constexpr const char* kLayers = R"(
[[layer]]
kind = "embedding"
name = "wte"
vocabulary = "classes"
width = 24
[[layer]]
kind = "position_embedding"
name = "wpe"
context = 40
[[layer]]
kind = "dropout"
rate = 0.1
name = "begin"
[[layer]]
kind = "layer_norm"
name = "ln"
[[layer]]
kind = "dense"
name = "qkv"
out = 72
[[layer]]
kind = "causal_self_attention"
heads = 3
name = "attention"
[[layer]]
kind = "add"
inputs = ["attention", "begin"]
name = "x"
[[layer]]
kind = "dense"
name = "up"
out = 40
inputs = ["x"]
[[layer]]
kind = "activation"
function = "silu"
name = "gate"
[[layer]]
kind = "dense"
name = "side"
out = 40
inputs = ["x"]
[[layer]]
kind = "relu"
name = "positive"
[[layer]]
kind = "multiply"
inputs = ["gate", "positive"]
[[layer]]
kind = "gelu"
[[layer]]
kind = "dense"
name = "head"
out = "classes"
)";

// The layers of the Llama family: grouped queries, rotated positions, no table of them.
constexpr const char* kLlamaLayers = R"(
[[layer]]
kind = "embedding"
name = "wte"
vocabulary = "classes"
width = 24
[[layer]]
kind = "rms_norm"
name = "norm"
[[layer]]
kind = "dense"
name = "qkv"
out = 48
bias = false
[[layer]]
kind = "head_rms_norm"
name = "heads"
heads = 4
kv_heads = 2
[[layer]]
kind = "rotary"
name = "rotary"
heads = 4
kv_heads = 2
[[layer]]
kind = "causal_self_attention"
name = "attention"
heads = 4
kv_heads = 2
[[layer]]
kind = "dense"
name = "out"
out = 24
[[layer]]
kind = "add"
inputs = ["wte", "out"]
[[layer]]
kind = "dense"
name = "head"
out = "classes"
bias = false
tied = "wte"
)";

struct Model {
  Graph graph;
  ModelState state;
  engine::ThreadPool threads;
  std::vector<std::int32_t> tokens;

  Model(Graph the_graph, DType dtype)
      : graph(std::move(the_graph)), state(ModelState::allocate(graph, dtype)), threads(2) {
    state.initialize(graph, 4);
    for (std::int64_t i = 0; i < 3 * kPositions; ++i)
      tokens.push_back(static_cast<std::int32_t>((i * i + 7 * i) % kTokens));
  }

  models::NextToken::Tokens text(std::size_t first, std::size_t count) const {
    return std::span(tokens).subspan(first, count);
  }
  // The logits at each position of the last tokens that fit into the context, computed at once.
  std::vector<std::vector<double>> whole(models::NextToken::Tokens text) {
    std::vector<std::int32_t> padded(static_cast<std::size_t>(kPositions));
    text = text.last(std::min(text.size(), padded.size()));
    std::ranges::copy(text, padded.begin());
    engine::Inference inference(graph, state, threads,
                                {.batch = 1, .dtype = state.parameters.values.dtype()});
    inference.predict(
        {.count = 1, .samples = {}, .tokens = padded, .labels = {}, .sample_ids = {}});
    std::vector<std::vector<double>> rows;
    for (std::size_t i = 0; i < text.size(); ++i)
      rows.push_back(inference.logits_of(static_cast<std::int64_t>(i)));
    return rows;
  }
};

double difference(std::span<const double> a, std::span<const double> b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

std::vector<double> copied(std::span<const double> values) {
  return {values.begin(), values.end()};
}

// A model's name for the test, and its layers; null: gpt-nano.
struct TextModel {
  const char *name, *layers;
};
constexpr TextModel kTextModels[] = {
    {"GptNano", nullptr}, {"File", kLayers}, {"Llama", kLlamaLayers}};

class KeptPositions : public testing::TestWithParam<std::tuple<TextModel, DType>> {
 protected:
  static Model make() {
    const models::ModelOptions options{.sample_shape = {kPositions}, .classes = kTokens};
    const auto [model, dtype] = GetParam();
    if (model.layers == nullptr) return {models::build_model("gpt-nano", options), dtype};
    const test_support::TemporaryDirectory folder;
    test_support::write_text(folder / "m.toml", model.layers);
    return {models::build_model(folder / "m.toml", options), dtype};
  }
  static double tolerance() { return std::get<1>(GetParam()) == DType::kF64 ? 1e-12 : 1e-5; }
};

TEST_P(KeptPositions, GiveTheLogitsOfTheWholeContextAtEachPosition) {
  Model m = make();
  const auto context = static_cast<std::size_t>(kPositions);
  const auto expected = m.whole(m.text(0, context));
  models::NextToken next(m.graph, m.state, m.threads);
  ASSERT_TRUE(next.keeps_positions());
  for (std::size_t length = 1; length <= context; ++length)
    EXPECT_LE(difference(next.logits_after(m.text(0, length)), expected[length - 1]), tolerance())
        << length;
  // Beyond it, the context moves on.
  for (std::size_t length = context + 1; length <= context + 3; ++length)
    EXPECT_LE(difference(next.logits_after(m.text(0, length)), m.whole(m.text(0, length)).back()),
              tolerance())
        << length;
}

TEST_P(KeptPositions, PromptsOfAnyLength) {
  Model m = make();
  const auto context = static_cast<std::size_t>(kPositions);
  for (const std::size_t length : {std::size_t{1}, std::size_t{7}, context, 2 * context}) {
    models::NextToken next(m.graph, m.state, m.threads);
    EXPECT_LE(difference(next.logits_after(m.text(0, length)), m.whole(m.text(0, length)).back()),
              tolerance())
        << length;
  }
}

TEST_P(KeptPositions, ATextThatChangesIsComputedAnewFromThere) {
  Model m = make();
  models::NextToken next(m.graph, m.state, m.threads);
  next.logits_after(m.text(0, 20));
  std::vector<std::int32_t> other(m.tokens.begin(), m.tokens.begin() + 15);
  other[9] = 30;
  EXPECT_LE(difference(next.logits_after(other), m.whole(other).back()), tolerance());
  const std::vector<double> again = copied(next.logits_after(other));
  EXPECT_LE(difference(again, m.whole(other).back()), tolerance());
  other.resize(10);
  EXPECT_LE(difference(next.logits_after(other), m.whole(other).back()), tolerance());
}

TEST_P(KeptPositions, SeveralTextsAreWhatEachIsAlone) {
  Model m = make();
  models::NextToken together(m.graph, m.state, m.threads, {}, 3);
  const double bits = std::get<1>(GetParam()) == DType::kF64 ? 1e-12 : 0;  // Eigen's products
  for (std::size_t length = 1; length < 40; length += 6) {
    const models::NextToken::Tokens texts[] = {m.text(0, length), m.text(5, 2 * length % 11 + 1),
                                               m.text(9, 30)};
    together.compute(texts);
    for (std::size_t i = 0; i < 3; ++i) {
      models::NextToken next(m.graph, m.state, m.threads);
      EXPECT_LE(difference(together.logits_of(i), next.logits_after(texts[i])), bits)
          << i << " at " << length;
    }
  }
}

TEST_P(KeptPositions, RejectNoTextAndUnknownTokens) {
  Model m = make();
  models::NextToken next(m.graph, m.state, m.threads);
  EXPECT_THROW(next.logits_after(kNone), engine::InputError);
  EXPECT_THROW(next.logits_after(std::vector<std::int32_t>{1, kTokens}), engine::InputError);
  const std::vector<std::int32_t> one{3};
  EXPECT_LE(difference(next.logits_after(one), m.whole(one).back()), tolerance());
}

class PackedInBf16 : public KeptPositions {};

// A tied table is rounded as the head's weight, but not as an embedding, which no state expresses.
TEST_P(PackedInBf16, GivesTheLogitsOfRoundedWeights) {
  Model m = make(), rounded = make();
  models::NextToken next(m.graph, m.state, m.threads, {.packed = DType::kBF16}, 2);
  ASSERT_TRUE(next.keeps_positions());
  const models::NextToken::Tokens texts[] = {m.text(0, 20), m.text(3, 7)};
  next.compute(texts);
  bool tied = true;
  for (const ModelState::Entry& entry : rounded.state.entries) {
    tied = tied && entry.name != "head.weight";
    const engine::TensorView view = rounded.state.view(entry);
    if (view.shape.rank() != 2 || entry.name.find("wte") != entry.name.npos ||
        entry.name.find("wpe") != entry.name.npos)
      continue;
    for (float& value : view.span<float>())
      value = base::to_float(base::from_float<base::bf16>(value));
  }
  models::NextToken plain(rounded.graph, rounded.state, rounded.threads, {}, 2);
  plain.compute(texts);
  for (std::size_t i = 0; i < 2; ++i) {
    const double largest = std::ranges::max(plain.logits_of(i));
    EXPECT_LE(difference(next.logits_of(i), plain.logits_of(i)), tied ? 0.02 * largest : 0) << i;
    EXPECT_GT(difference(next.logits_of(i), m.whole(texts[i]).back()), 1e-4) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, KeptPositions,
                         testing::Combine(testing::ValuesIn(kTextModels),
                                          testing::Values(DType::kF32, DType::kF64)),
                         [](const auto& param) {
                           return std::string(std::get<0>(param.param).name) +
                                  (std::get<1>(param.param) == DType::kF64 ? "F64" : "F32");
                         });

INSTANTIATE_TEST_SUITE_P(Models, PackedInBf16,
                         testing::Combine(testing::ValuesIn(kTextModels),
                                          testing::Values(DType::kF32)),
                         [](const auto& param) {
                           return std::string(std::get<0>(param.param).name);
                         });

}  // namespace
