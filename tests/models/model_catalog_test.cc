// Built-in models: PyTorch's names, shapes and counts, and what happens with other names and samples.
#include "models/model_catalog.h"

#include <gtest/gtest.h>

#include <sstream>

#include "engine/core/error.h"
#include "engine/graph/model_state.h"
#include "models/nearest.h"
#include "tests/support/test_support.h"

namespace {

using engine::ModelState;

// "name shape" of each entry, as state_dicts.txt has them behind the model's name.
std::vector<std::string> state_dict(const engine::Graph& graph) {
  const ModelState state = ModelState::allocate(graph, engine::DType::kF32);
  std::vector<std::string> lines;
  for (const ModelState::Entry& entry : state.entries)
    lines.push_back(entry.name + " " + state.layout(entry).file_shape.to_string());
  return lines;
}

std::vector<std::string> stored_state_dict(const std::string& model) {
  std::istringstream text(test_support::read_text(test_support::source_directory() + "/tests/models/state_dicts.txt"));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);)
    if (line.starts_with(model + " ")) lines.push_back(line.substr(model.size() + 1));
  return lines;
}

class BuiltInModel : public testing::TestWithParam<std::pair<const char*, std::int64_t>> {};

TEST_P(BuiltInModel, HasPyTorchsStateDict) {
  const auto [name, parameters] = GetParam();
  const engine::Graph graph = models::build_model(name, models::default_options(name));
  EXPECT_EQ(ModelState::allocate(graph, engine::DType::kF32).parameter_count(), parameters);
  EXPECT_FALSE(stored_state_dict(name).empty());
  EXPECT_EQ(state_dict(graph), stored_state_dict(name));
}

INSTANTIATE_TEST_SUITE_P(All, BuiltInModel,
                         testing::Values(std::pair{"mlp", std::int64_t{669'706}}, std::pair{"convnet", std::int64_t{29'034}},
                                         std::pair{"resnet18-cifar", std::int64_t{11'173'962}}));

std::string error_of(const std::string& name, const models::ModelOptions& options) {
  try {
    models::build_model(name, options);
  } catch (const engine::Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ModelCatalog, SaysWhichNameIsNearest) {
  EXPECT_EQ(error_of("convnett", {.sample_shape = {28, 28, 1}}),
            "unknown model 'convnett': did you mean 'convnet'? There are mlp, convnet, resnet18-cifar, and FILE.toml for a "
            "list of "
            "layers");
  EXPECT_THROW(models::default_options("resnet"), engine::ModelError);
  EXPECT_EQ(error_of("mlp", {.sample_shape = engine::Shape{64}, .classes = 65}),
            "this model reads images or rows of numbers, [h, w, c], not samples of shape [64] (token ids)");
  EXPECT_EQ(models::nearest_name("resnet18", models::model_names()), "resnet18-cifar");
  EXPECT_EQ(models::model_names().size(), 3U);
}

TEST(ModelCatalog, TakesTheDataSetsShapeAndClasses) {
  const auto last = [](const std::string& name, const models::ModelOptions& options) {
    return state_dict(models::build_model(name, options));
  };
  EXPECT_EQ(last("mlp", {.sample_shape = {32, 32, 3}, .classes = 100})[0], "layers.0.weight [512, 3072]");
  EXPECT_EQ(last("mlp", {.sample_shape = {32, 32, 3}, .classes = 100}).back(), "layers.2.bias [100]");
  EXPECT_EQ(last("convnet", {.sample_shape = {32, 32, 3}})[0], "layer1.0.weight [16, 3, 5, 5]");
  EXPECT_EQ(last("resnet18-cifar", {.sample_shape = {28, 28, 1}})[0], "conv1.weight [64, 1, 3, 3]");
}

TEST(ModelCatalog, SamplesThatAreTooSmallNameTheLayerAndBothShapes) {
  EXPECT_EQ(error_of("convnet", {.sample_shape = {3, 3, 1}}),
            "layer 'layer2.3' (max_pool2d): expected an input of at least [2, 2, 32] (window 2, padding 0), got [1, 1, 32]");
  EXPECT_EQ(error_of("mlp", {.sample_shape = {28, 28, 1}, .classes = 0}), "a model needs at least 1 class, not 0");
}

}  // namespace
