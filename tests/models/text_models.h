// Shared by the tests of models::NextToken: small models of text, and their logits at every
// position of a whole context.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "models/model_catalog.h"
#include "models/next_token.h"
#include "tests/support/layers_toml.h"
#include "tests/support/test_support.h"

namespace text_models {

inline constexpr std::int64_t kPositions = 24, kTokens = 31;

// Every layer that models of text may have, with a gated branch as in SwiGLU.
inline const std::string kLayers = test_support::layers_toml(R"(
embedding wte vocabulary=classes width=24
position_embedding wpe context=40
dropout begin rate=0.1
layer_norm ln
dense qkv out=72
causal_self_attention attention heads=3
add x inputs=["attention","begin"]
dense up out=40 inputs=["x"]
activation gate function=silu
dense side out=40 inputs=["x"]
relu positive
multiply inputs=["gate","positive"]
gelu
dense head out=classes
)");

// The layers of the Llama family: grouped queries, rotated positions, no table of them.
inline const std::string kLlamaLayers = test_support::layers_toml(R"(
embedding wte vocabulary=classes width=24
rms_norm norm
dense qkv out=48 bias=false
head_rms_norm heads heads=4 kv_heads=2
rotary rotary heads=4 kv_heads=2
causal_self_attention attention heads=4 kv_heads=2
dense out out=24
add inputs=["wte","out"]
dense head out=classes bias=false tied=wte
)");

struct Model {
  engine::Graph graph;
  engine::ModelState state;
  engine::ThreadPool threads;
  std::vector<std::int32_t> tokens;

  Model(engine::Graph the_graph, engine::DType dtype)
      : graph(std::move(the_graph)), state(engine::ModelState::allocate(graph, dtype)), threads(2) {
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

inline double difference(std::span<const double> a, std::span<const double> b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

inline std::vector<double> copied(std::span<const double> values) {
  return {values.begin(), values.end()};
}

// A model's name for the test, and its layers; null: gpt-nano.
struct TextModel {
  const char* name;
  const std::string* layers;
};
inline constexpr TextModel kTextModels[] = {
    {"GptNano", nullptr}, {"File", &kLayers}, {"Llama", &kLlamaLayers}};

inline Model make_model(const TextModel& model, engine::DType dtype) {
  const models::ModelOptions options{.sample_shape = {kPositions}, .classes = kTokens};
  if (model.layers == nullptr) return {models::build_model("gpt-nano", options), dtype};
  const test_support::TemporaryDirectory folder;
  test_support::write_text(folder / "m.toml", *model.layers);
  return {models::build_model(folder / "m.toml", options), dtype};
}

}  // namespace text_models
