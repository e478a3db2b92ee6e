// Built-in models: PyTorch's names, shapes and counts, and what happens with other names and
// samples.
#include "models/model_catalog.h"
#include "io/base/text/text_parts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <sstream>

#include "engine/core/error.h"
#include "engine/graph/model_state.h"
#include "io/base/text/nearest.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tools/options/table/option_table.h"

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
  std::istringstream text(
      test_support::read_text(test_support::source_directory() + "/tests/models/state_dicts.txt"));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);)
    if (line.starts_with(model + " ")) lines.push_back(line.substr(model.size() + 1));
  return lines;
}

using Count = std::pair<const char*, std::int64_t>;  // trained numbers

class BuiltInModel : public testing::TestWithParam<Count> {};

TEST_P(BuiltInModel, HasPyTorchsStateDict) {
  const auto [name, parameters] = GetParam();
  const engine::Graph graph = models::build_model(name, models::default_options(name));
  EXPECT_EQ(ModelState::allocate(graph, engine::DType::kF32).parameter_count(), parameters);
  EXPECT_FALSE(stored_state_dict(name).empty());
  EXPECT_EQ(state_dict(graph), stored_state_dict(name));
}

INSTANTIATE_TEST_SUITE_P(
    All, BuiltInModel,
    testing::Values(Count{"mlp", 669'706}, Count{"convnet", 29'034}, Count{"resnet18", 11'689'512},
                    Count{"resnet34", 21'797'672}, Count{"resnet50", 25'557'032},
                    Count{"resnet101", 44'549'160}, Count{"resnet152", 60'192'808},
                    Count{"resnet18-cifar", 11'173'962}, Count{"resnet50-cifar", 23'520'842},
                    Count{"resnet20-cifar", 269'722}, Count{"resnet56-cifar", 853'018},
                    Count{"pyramidnet110", 24'253'410}),
    [](const auto& count) { return test_support::test_name(count.param.first); });

// 415 parameters, 310 running statistics and 155 counters, and what the last entries are.
TEST(PyramidNet, HasItsKindsOfEntriesInOrder) {
  const engine::Graph graph =
      models::build_model("pyramidnet110", models::default_options("pyramidnet110"));
  const ModelState state = ModelState::allocate(graph, engine::DType::kF32);
  std::map<ModelState::Kind, int> kinds;
  for (const ModelState::Entry& entry : state.entries) ++kinds[entry.kind];
  EXPECT_EQ(kinds[ModelState::Kind::kParameter], 415);
  EXPECT_EQ(kinds[ModelState::Kind::kRunning], 310);
  EXPECT_EQ(kinds[ModelState::Kind::kCounter], 155);
  const std::vector<std::string> entries = state_dict(graph);
  EXPECT_EQ(std::vector(entries.end() - 5, entries.end()),
            (std::vector<std::string>{"bn_out.running_mean [271]", "bn_out.running_var [271]",
                                      "bn_out.num_batches_tracked []", "fc_out.weight [10, 271]",
                                      "fc_out.bias [10]"}));
}

// torchvision's residual networks start with convolutions that are normal by fan-out; those for
// small images with PyTorch's default, uniform by fan-in. A uniform distribution has no value
// beyond 1.74 deviations.
TEST(ResNet, InitialConvolutionsAreTorchvisionsOrPyTorchs) {
  const auto largest_in_deviations = [](const std::string& name) {
    const engine::Graph graph = models::build_model(name, models::default_options(name));
    ModelState state = ModelState::allocate(graph, engine::DType::kF32);
    state.initialize(graph, 1);
    double squares = 0, largest = 0;
    const auto weight =
        state.view(state.entries[6]).span<float>();  // of the first block, behind conv1 and bn1
    EXPECT_TRUE(state.entries[6].name.ends_with("conv1.weight")) << state.entries[6].name;
    for (const float value : weight) {
      squares += double{value} * value;
      largest = std::max(largest, std::abs(double{value}));
    }
    return largest / std::sqrt(squares / static_cast<double>(weight.size()));
  };
  EXPECT_GT(largest_in_deviations("resnet18"), 3);
  EXPECT_GT(largest_in_deviations("resnet20-cifar"), 2.5);
  EXPECT_LT(largest_in_deviations("resnet18-cifar"), 1.8);
}

std::string error_of(const std::string& name, const models::ModelOptions& options) {
  try {
    models::build_model(name, options);
  } catch (const engine::Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ModelCatalog, SaysWhichNameIsNearest) {
  EXPECT_VALUES(error_of("convnett", {.sample_shape = {28, 28, 1}}),
                "'convnett': 'convnet'? (known: " + base::join_text(models::model_names()) +
                    ", FILE.toml FILE.onnx, config.json)");
  EXPECT_THROW(models::default_options("resnet"), engine::ModelError);
  EXPECT_VALUES(error_of("mlp", {.sample_shape = engine::Shape{64}, .classes = 65}),
                "[h, w, c], [64] (token ids)");
  EXPECT_EQ(base::nearest_name("resnet55-cifar", models::model_names()), "resnet50-cifar");
  EXPECT_EQ(base::nearest_name("pyramidnet", models::model_names()), "pyramidnet110");
}

TEST(ModelCatalog, ModelsOfImagesRefuseRowsOfNumbers) {
  for (const std::string name : {"convnet", "resnet18", "pyramidnet110"})
    EXPECT_VALUES(error_of(name, {.sample_shape = {1, 1, 4}}),
                  "'" + name + "' images, 4 numbers, --dataset csv --model mlp, FILE.toml");
  EXPECT_EQ(error_of("mlp", {.sample_shape = {1, 1, 4}}), "no error");
}

// The option's help is written by hand, below models/ in the order of folders: this keeps the two
// together.
TEST(ModelCatalog, TheOptionsHelpNamesEveryModel) {
  const std::string help = tools::find_option("model")->help;
  std::string expected;
  for (const std::string& name : models::model_names()) expected += name + ", ";
  EXPECT_TRUE(help.starts_with(expected + "a layer list ")) << help;
}

TEST(ModelCatalog, TakesTheDataSetsShapeAndClasses) {
  const auto last = [](const std::string& name, const models::ModelOptions& options) {
    return state_dict(models::build_model(name, options));
  };
  EXPECT_EQ(last("mlp", {.sample_shape = {32, 32, 3}, .classes = 100})[0],
            "layers.0.weight [512, 3072]");
  EXPECT_EQ(last("mlp", {.sample_shape = {32, 32, 3}, .classes = 100}).back(),
            "layers.2.bias [100]");
  EXPECT_EQ(last("convnet", {.sample_shape = {32, 32, 3}})[0], "layer1.0.weight [16, 3, 5, 5]");
  EXPECT_EQ(last("resnet18-cifar", {.sample_shape = {28, 28, 1}})[0], "conv1.weight [64, 1, 3, 3]");
  EXPECT_EQ(last("resnet50", {.sample_shape = {32, 32, 3}, .classes = 10}).back(), "fc.bias [10]");
  EXPECT_EQ(last("pyramidnet110", {.sample_shape = {28, 28, 1}})[0], "conv1.weight [16, 1, 3, 3]");
}

TEST(ModelCatalog, SamplesThatAreTooSmallNameTheLayerAndBothShapes) {
  EXPECT_VALUES(error_of("convnet", {.sample_shape = {3, 3, 1}}),
                "'layer2.3' max_pool2d [2, 2, 32] 2 0 [1, 1, 32]");
  EXPECT_VALUES(error_of("mlp", {.sample_shape = {28, 28, 1}, .classes = 0}), "model 1 class, 0");
}

}  // namespace
