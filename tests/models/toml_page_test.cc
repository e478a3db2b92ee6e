// docs/toml.md: its table is the program's, its examples are models that compute, and the rules of
// shapes that it states are those that layers follow.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "engine/graph/executor.h"
#include "models/layer_kinds.h"
#include "models/model_catalog.h"
#include "tests/support/test_support.h"

namespace {

std::string page() {
  return test_support::read_text(test_support::source_directory() + "/docs/toml.md");
}

std::vector<std::string> examples() {
  std::vector<std::string> found;
  const std::string text = page(), begin = "```toml\n";
  for (std::size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at)) {
    at += begin.size();
    found.push_back(text.substr(at, text.find("```", at) - at));
  }
  return found;
}

TEST(TomlPage, HasTheTableOfThisProgram) {
  const std::string table = models::layer_kinds_table();
  EXPECT_NE(page().find("<!-- printed by: engine manual --layers -->\n" + table), std::string::npos)
      << "docs/toml.md lacks this table, which `engine manual --layers` prints:\n"
      << table;
}

TEST(TomlPage, DescribesOptionsAsLayersAskForThem) {
  for (const models::LayerKind& kind : models::layer_kinds()) {
    if (kind.name != "conv2d") continue;
    ASSERT_EQ(kind.options.size(), 7u);
    EXPECT_EQ(kind.options[0].key, "out_channels");
    EXPECT_EQ(kind.options[0].otherwise, "");
    EXPECT_EQ(kind.options[1].key, "kernel");
    EXPECT_EQ(kind.options[1].otherwise, "3");
    EXPECT_EQ(kind.options[4].type, "true or false");
    return;
  }
  FAIL() << "no conv2d";
}

TEST(TomlPage, ItsExamplesComputeAndHaveEveryKind) {
  const test_support::TemporaryDirectory folder;
  std::set<std::string> kinds;
  const std::vector<std::string> all = examples();
  ASSERT_GE(all.size(), 3u);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string path = folder / ("m" + std::to_string(i) + ".toml");
    test_support::write_text(path, all[i]);
    const models::ModelOptions options = models::default_options(path);
    const engine::Graph graph = models::build_model(path, options);
    for (const engine::Graph::Node& node : graph.nodes())
      if (node.layer) kinds.insert(std::string(node.layer->kind()));
    engine::ModelState state = engine::ModelState::allocate(graph, engine::DType::kF32);
    state.initialize(graph, 1);
    const engine::Plan plan = engine::Plan::compile(graph, {.max_batch = 2});
    engine::ThreadPool threads(1);
    engine::Executor executor(plan, state, threads, 1);
    const bool text = options.sample_shape.rank() == 1;
    const std::int64_t positions = text ? options.sample_shape[0] : 1;
    const std::vector<float> samples(text ? 0 : 2 * options.sample_shape.count(), 0.5F);
    const std::vector<std::int32_t> tokens(text ? 2 * positions : 0, 1), labels(2 * positions, 1);
    const std::vector<std::int64_t> ids{0, 1};
    const engine::BatchResult result = executor.forward(
        {.count = 2, .samples = samples, .tokens = tokens, .labels = labels, .sample_ids = ids},
        true);
    EXPECT_EQ(result.rows, 2 * positions) << all[i];
    EXPECT_GT(result.loss_sum, 0) << all[i];
  }
  for (const models::LayerKind& kind : models::layer_kinds())
    if (kind.name != "sync_batch_norm2d") {  // which stands for another one
      EXPECT_TRUE(kinds.contains(kind.name)) << "no example has " << kind.name;
    }
}

// The shape after a flatten tells the output's count of numbers.
std::int64_t outputs_of(const std::string& layer, std::int64_t h, std::int64_t w, std::int64_t c) {
  const test_support::TemporaryDirectory folder;
  test_support::write_text(folder / "m.toml", "logits = \"end\"\n[[layer]]\n" + layer +
                                                  "\n[[layer]]\nkind = \"flatten\"\nname = "
                                                  "\"flat\"\n[[layer]]\nkind = \"dense\"\nname = "
                                                  "\"end\"\nout = \"classes\"\n");
  const engine::Graph graph =
      models::build_model(folder / "m.toml", {.sample_shape = {h, w, c}, .classes = 2});
  for (const engine::Graph::Node& node : graph.nodes())
    if (node.name == "flat") return node.shape[0];
  return -1;
}

TEST(TomlPage, ItsRulesOfShapesAreThoseOfTheLayers) {
  const auto side = [](std::int64_t n, std::int64_t window, std::int64_t stride,
                       std::int64_t padding) { return (n + 2 * padding - window) / stride + 1; };
  for (const std::int64_t h : {7, 8, 11})
    for (const std::int64_t stride : {1, 2, 3})
      for (const std::int64_t padding : {0, 1}) {
        const std::string numbers =
            "\nstride = " + std::to_string(stride) + "\npadding = " + std::to_string(padding);
        EXPECT_EQ(
            outputs_of("kind = \"conv2d\"\nname = \"a\"\nout_channels = 5\nkernel = 4" + numbers, h,
                       9, 2),
            side(h, 4, stride, padding) * side(9, 4, stride, padding) * 5);
        for (const std::string kind : {"max_pool2d", "average_pool2d"}) {
          const std::string pool = "kind = \"" + kind + "\"\nwindow = 3" + numbers;
          EXPECT_EQ(outputs_of(pool, h, 9, 2),
                    side(h, 3, stride, padding) * side(9, 3, stride, padding) * 2);
          const auto ceiled = [&](std::int64_t n) {
            std::int64_t count = (n + 2 * padding - 3 + stride - 1) / stride + 1;
            if ((count - 1) * stride >= n + padding) --count;
            return count;
          };
          EXPECT_EQ(outputs_of(pool + "\nceil_mode = true", h, 9, 2), ceiled(h) * ceiled(9) * 2)
              << pool << " of " << h;
        }
      }
  EXPECT_EQ(outputs_of("kind = \"max_pool2d\"\nwindow = 3", 9, 9, 1), 9);  // stride: the window
  EXPECT_EQ(outputs_of("kind = \"pad_channels\"\nbefore = 1\nafter = 2", 2, 2, 3), 4 * 6);
  const auto fails = [&](const std::string& layer) {
    EXPECT_THROW(outputs_of(layer, 4, 4, 6), engine::Error) << layer;
  };
  fails("kind = \"max_pool2d\"\nwindow = 16");
  fails("kind = \"max_pool2d\"\nwindow = 3\npadding = 2");
  fails("kind = \"max_pool2d\"\nwindow = 5");
  fails("kind = \"conv2d\"\nname = \"a\"\nout_channels = 1\nkernel = 5");
  fails("kind = \"group_norm\"\nname = \"a\"\ngroups = 4");
  fails("kind = \"add\"");
  fails("kind = \"dropout\"\nrate = 1");
}

}  // namespace
