// Models through the interface: built, parsed, saved, loaded, asked.
#include "engine/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/layers_toml.h"
#include "tests/support/test_support.h"
#include "tests/tools/api/expect_error.h"

namespace {

using namespace engine::api;

const ModelShape kRow{.sample = {1, 1, 3}, .classes = 2};

// One dense layer, of which every logit can be said by hand.
Model linear(std::uint64_t seed = 0) {
  return Model::parse(test_support::layers_toml(R"(
flatten
dense fc out=classes
)"),
                      kRow, seed);
}

TEST(ApiModel, KnowsTheCatalog) {
  const std::vector<std::string> names = model_names();
  EXPECT_TRUE(std::ranges::count(names, "mlp") == 1);
  const Model model =
      Model::build("convnet", {.sample = {28, 28, 1}, .classes = 10}, /*seed=*/1, /*threads=*/1);
  EXPECT_EQ(model.name(), "convnet");
  EXPECT_EQ(model.shape().classes, 10);
  std::int64_t parameters = 0;
  for (const Tensor& tensor : model.tensors())
    if (tensor.name.find("running_") == std::string::npos)
      parameters += static_cast<std::int64_t>(tensor.values.size());
  EXPECT_EQ(parameters, model.parameter_count());
}

TEST(ApiModel, PredictsWhatItsWeightsSay) {
  Model model = linear();
  model.set_tensors({{"fc.weight", {2, 3}, {1, 2, 3, 0, 0, -1}}, {"fc.bias", {2}, {0.5F, 0.25F}}});
  EXPECT_EQ(model.predict(std::vector<float>{1, 1, 1, 2, 0, 0}),
            (std::vector<float>{6.5F, -0.75F, 2.5F, 0.25F}));
  EXPECT_TRUE(model.predict(std::vector<float>{}).empty());
  // More than one forward pass takes.
  std::vector<float> rows(450);
  for (std::size_t i = 0; i < 150; ++i) rows[3 * i] = static_cast<float>(i);
  const std::vector<float> logits = model.predict(rows);
  ASSERT_EQ(logits.size(), 300U);
  for (std::size_t i = 0; i < 150; ++i) EXPECT_EQ(logits[2 * i], static_cast<float>(i) + 0.5F) << i;
}

// Training never changes a constant, so that an infinite one is the model's own.
TEST(ApiModel, ConstantsMayBeInfinite) {
  Model model = Model::parse(test_support::layers_toml(R"(
flatten
dense fc out=3
constant mask shape=[3]
add inputs=["fc","mask"]
softmax
dense end out=classes
)"),
                             kRow);
  const float inf = INFINITY;
  const std::vector<Tensor> tensors{{"fc.weight", {3, 3}, std::vector<float>(9)},
                                    {"fc.bias", {3}, {1, 1, 1}},
                                    {"mask.value", {3}, {0, -inf, 0}},
                                    {"end.weight", {2, 3}, {2, 8, 4, 1, 9, 1}},
                                    {"end.bias", {2}, {0, 0}}};
  model.set_tensors(tensors);
  EXPECT_EQ(model.predict(std::vector<float>{1, 2, 3}), (std::vector<float>{3, 1}));
  std::vector<Tensor> bad = tensors;
  bad[1].values[0] = inf;
  EXPECT_API_ERROR(model.set_tensors(bad), DataError, 65, "'fc.bias' is not finite");
}

TEST(ApiModel, SavesAndLoadsWeights) {
  const test_support::TemporaryDirectory folder;
  Model first = linear(1), second = linear(2);
  const std::vector<float> row{0.5F, -1, 2};
  ASSERT_NE(first.predict(row), second.predict(row));
  for (const std::string file : {"m.safetensors", "m.npz", "m.pth"}) {
    first.save(folder / file);
    second = linear(2);
    second.load(folder / file);
    EXPECT_EQ(first.predict(row), second.predict(row)) << file;
  }
  EXPECT_API_ERROR(first.save(folder / "m.txt"), ConfigurationError, 78, "m.txt");
  EXPECT_API_ERROR(first.save(folder / "none/m.npz"), FileError, 73, "none");
  EXPECT_API_ERROR(first.load(folder / "missing.npz"), DataError, 65, "missing.npz");
}

TEST(ApiModel, ATextModelTakesTokens) {
  Model model = Model::build("gpt-nano", {.sample = {8}, .classes = 11}, 0, 1);
  const std::vector<std::int32_t> tokens{1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1};
  EXPECT_EQ(model.predict(tokens).size(), 2U * 8 * 11);
  EXPECT_API_ERROR(model.predict(std::vector<std::int32_t>(8, 11)), DataError, 65, "token 11 11");
  EXPECT_API_ERROR(model.predict(std::vector<float>(8)), ConfigurationError, 78,
                   "reads token ids, found numbers");
}

TEST(ApiModel, MistakesAreNamed) {
  EXPECT_API_ERROR(Model::build("mpl", kRow), ConfigurationError, 78, "mlp");
  EXPECT_API_ERROR(Model::build("mlp", {.sample = {3, 0, 1}, .classes = 2}), ConfigurationError, 78,
                   "[3, 0, 1]");
  EXPECT_API_ERROR(Model::build("mlp", {.sample = {1, 1, 3}, .classes = 0}), ConfigurationError, 78,
                   "classes is 0");
  EXPECT_API_ERROR(Model::build("mlp", kRow, 0, -1), ConfigurationError, 78, "is -1");
  EXPECT_API_ERROR(Model::parse("[[layer]]\nkind = \"dense\"\nnme = 1", kRow), ConfigurationError,
                   78, "model.toml:");
  EXPECT_API_ERROR(Model::parse("", kRow), ConfigurationError, 78, "empty");
  EXPECT_API_ERROR(Model::parse("x", kRow, 0, 0, "m.txt"), ConfigurationError, 78, "m.txt");

  Model model = linear();
  EXPECT_API_ERROR(model.predict(std::vector<float>(4)), DataError, 65, "4 values 3");
  EXPECT_API_ERROR(model.predict(std::vector<std::uint8_t>(3)), ConfigurationError, 78,
                   "images prepared");
  EXPECT_API_ERROR(model.set_tensors({{"fc.weight", {2, 3}, {1}}}), DataError, 65,
                   "has 1 values, expected 6");
  EXPECT_API_ERROR(model.set_tensors({{"fc.bias", {2}, {1, 2}}}), DataError, 65, "fc.weight");
  EXPECT_API_ERROR(model.set_tensors({{"fc.weight", {2, 3}, {1, 2, 3, 0, 0, -1}},
                                      {"fc.bias", {2}, {1, 2}},
                                      {"fc.bias", {2}, {3, 4}}}),
                   DataError, 65, "tensor 'fc.bias' is given twice");
  EXPECT_API_ERROR(
      model.set_tensors({{"fc.weight", {2, 3}, {1, 2, NAN, 0, 0, 0}}, {"fc.bias", {2}, {0, 0}}}),
      DataError, 65, "'fc.weight' is not finite");
}

}  // namespace
