// Weights of image models are recognized by names and shapes, with any number of classes.
#include "models/image_weights.h"

#include <gtest/gtest.h>

#include "models/model_catalog.h"

namespace {

// Arrays with the names and shapes of a model, without numbers.
std::vector<io::NamedArray> arrays_of(const std::string& model, std::int64_t classes) {
  models::ModelOptions options = models::default_options(model);
  options.classes = classes;
  const engine::Graph graph = models::build_model(model, options);
  std::vector<io::NamedArray> arrays;
  for (engine::NodeId id = 0; id < static_cast<engine::NodeId>(graph.nodes().size()); ++id)
    for (const engine::ParameterSpec& spec : graph.own_parameters(id)) {
      io::NamedArray array;
      array.section = io::Section::kParameter;
      array.name = graph.nodes()[static_cast<std::size_t>(id)].name + "." + spec.name;
      const auto& dims = spec.layout.file_shape.dims();
      array.shape.assign(dims.begin(), dims.end());
      arrays.push_back(array);
    }
  return arrays;
}

TEST(ImageWeights, AreRecognizedWithAnyNumberOfClasses) {
  for (const char* model : {"mlp", "convnet", "resnet18", "resnet34", "resnet50", "resnet18-cifar",
                            "resnet50-cifar", "resnet20-cifar"})
    for (const std::int64_t classes : {1, 7, 1000}) {
      const auto found = models::recognize_image_weights(arrays_of(model, classes));
      ASSERT_TRUE(found.has_value()) << model;
      EXPECT_EQ(found->model, model);
      EXPECT_EQ(found->classes, classes);
      EXPECT_EQ(models::classes_of_image_weights(model, arrays_of(model, classes)), classes);
      EXPECT_EQ(models::classes_of_image_weights("resnet101", arrays_of(model, classes)), 0);
    }
}

TEST(ImageWeights, BuffersDoNotMatter) {
  std::vector<io::NamedArray> arrays = arrays_of("resnet18", 10);
  arrays.emplace_back();
  arrays.back().section = io::Section::kBuffer;
  arrays.back().name = "bn1.running_mean";
  EXPECT_EQ(models::recognize_image_weights(arrays)->model, "resnet18");
}

TEST(ImageWeights, OfOtherModelsAreNotRecognized) {
  const std::vector<io::NamedArray> own = arrays_of("resnet18", 10);
  EXPECT_FALSE(models::recognize_image_weights({}).has_value());
  EXPECT_FALSE(models::recognize_image_weights(arrays_of("gpt-nano", 65)).has_value());
  std::vector<io::NamedArray> changed = own;
  changed.erase(changed.begin() + 3);
  EXPECT_FALSE(models::recognize_image_weights(changed).has_value()) << "one is missing";
  changed = own;
  changed.push_back(own.front());
  changed.back().name = "more.weight";
  EXPECT_FALSE(models::recognize_image_weights(changed).has_value()) << "one is unknown";
  changed = own;
  changed.front().shape[0] *= 2;
  EXPECT_FALSE(models::recognize_image_weights(changed).has_value()) << "one has another shape";
  changed = own;
  changed.back().shape[0] = 11;
  EXPECT_FALSE(models::recognize_image_weights(changed).has_value()) << "a bias of other classes";
}

}  // namespace
