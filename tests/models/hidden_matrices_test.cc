// Which parameters of the built-in models are hidden matrices.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/graph/model_state.h"
#include "engine/graph/parameter_kinds.h"
#include "models/model_catalog.h"

namespace {

std::vector<std::string> hidden(const char* model) {
  return engine::hidden_matrices(models::build_model(model, models::default_options(model)));
}

TEST(HiddenMatrices, LeaveOutTheFirstAndTheLastLayer) {
  EXPECT_EQ(hidden("mlp").size(), 1U);
  EXPECT_EQ(hidden("convnet"), std::vector<std::string>{"layer2.0.weight"});
  const std::vector<std::string> resnet = hidden("resnet18");
  EXPECT_EQ(resnet.size(), 19U);  // 20 convolutions without the first
  for (const char* outer : {"conv1.weight", "fc.weight"})
    EXPECT_EQ(std::ranges::count(resnet, outer), 0) << outer;
  EXPECT_EQ(std::ranges::count(resnet, "layer2.0.downsample.0.weight"), 1);
}

// Embeddings of tokens and positions and the head, tied or not, are none.
TEST(HiddenMatrices, OfATransformerAreThoseOfItsBlocks) {
  for (const char* model : {"gpt-nano", "gpt2"}) {
    const engine::Graph graph = models::build_model(model, models::default_options(model));
    const std::vector<std::string> names = engine::hidden_matrices(graph);
    std::size_t matrices = 0, outer = 0;
    const engine::ModelState state = engine::ModelState::allocate(graph, engine::DType::kF32);
    for (const engine::ModelState::Entry& e : state.entries) {
      if (state.layout(e).file_shape.rank() < 2) continue;
      ++matrices;
      const bool embedding = e.name.find("wte") != std::string::npos ||
                             e.name.find("wpe") != std::string::npos ||
                             e.name.find("head") != std::string::npos;
      outer += embedding ? 1 : 0;
      EXPECT_EQ(std::ranges::count(names, e.name), embedding ? 0 : 1) << e.name;
    }
    EXPECT_GE(outer, 2U);
    EXPECT_EQ(names.size(), matrices - outer);
  }
}

}  // namespace
