// Definitions from elsewhere: numbers that no model has, and too much of everything.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "engine/graph/plan.h"
#include "models/model_catalog.h"
#include "tests/support/expect_contains.h"

namespace {

constexpr const char* kEnd = "[[layer]]\nkind = \"dense\"\nname = \"fc\"\nout = \"classes\"\n";

models::ModelOptions image(std::string definition) {
  return {.sample_shape = {8, 8, 2}, .classes = 3, .definition = std::move(definition)};
}

models::ModelOptions text(std::string definition) {
  return {.sample_shape = {16}, .classes = 3, .definition = std::move(definition)};
}

std::string layer(const std::string& kind, const std::string& options, int number = 0) {
  return "[[layer]]\nkind = \"" + kind + "\"\nname = \"l" + std::to_string(number) + "\"\n" +
         options + "\n";
}

// What the model's graph, or its plan for a batch, ends with.
std::string fault_of(const models::ModelOptions& options, std::int64_t batch = 2) {
  try {
    const engine::Graph graph = models::build_model("m.toml", options);
    engine::Plan::compile(graph, {.max_batch = batch});
  } catch (const engine::ModelError& error) {
    return error.what();
  } catch (const engine::ShapeError& error) {
    return error.what();
  }
  return "no error";
}

void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words) EXPECT_VALUES(text, word);
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
}

// Checkpoints have array names of at most 4096 bytes: a run would train, and fail to save.
TEST(DefinitionLimits, ANameThatNoCheckpointHoldsIsRejectedBeforeTheStart) {
  const auto model = [](std::size_t bytes) {
    return image("[[layer]]\nkind = \"flatten\"\n[[layer]]\nkind = \"dense\"\nname = \"" +
                 std::string(bytes, 'n') + "\"\nout = \"classes\"\n");
  };
  EXPECT_EQ(fault_of(model(4000)), "no error");
  const std::string fault = fault_of(model(4001));
  expect_words(fault, {"m.toml (dense): name 4001 bytes; 4000"});
  EXPECT_LT(fault.size(), 200u);
}

TEST(DefinitionLimits, OptionsBeyond31BitsNameTheOptionAndBothValues) {
  const std::pair<const char*, std::vector<const char*>> kinds[] = {
      {"conv2d", {"out_channels", "kernel", "stride", "padding", "groups"}},
      {"dense", {"out"}},
      {"pad_channels", {"before", "after"}},
      {"group_norm", {"groups"}},
      {"max_pool2d", {"stride"}},
      {"average_pool2d", {"stride"}},
      {"embedding", {"vocabulary", "width"}},
      {"position_embedding", {"context"}},
      {"causal_self_attention", {"heads"}},
      {"rotary", {"heads"}},
      {"head_rms_norm", {"heads"}}};
  for (const auto& [kind, options] : kinds)
    for (const std::string option : options)
      for (const std::int64_t value :
           {std::int64_t{1} << 31, std::int64_t{1} << 58, std::int64_t{1} << 62, INT64_MAX}) {
        std::string more = option + " = " + std::to_string(value);
        if (kind == std::string("conv2d") && option != "out_channels") more += "\nout_channels = 2";
        if (option == "vocabulary") more += "\nwidth = 2";
        if (option == "width") more += "\nvocabulary = 2";
        expect_words(
            fault_of(image(layer(kind, more) + kEnd)),
            {"m.toml:1: " + std::string(kind), option + " 2147483647, " + std::to_string(value)});
      }
}

TEST(DefinitionLimits, TensorsHaveALargestSize) {
  const std::string most = "2147483647";
  const auto padded_by = [](const std::string& padding) {
    return fault_of(image(layer("conv2d", "out_channels = 2\npadding = " + padding) + kEnd));
  };
  expect_words(padded_by(most), {"m.toml:1: ", "layer 'l0' (conv2d)", "more than 2^63 elements"});
  expect_words(padded_by("1000000"),
               {"layer 'l0' (conv2d): the padded input [2000008, 2000008, 2]", "68719476736"});
  expect_words(
      fault_of(image(layer("pad_channels", "before = " + most + "\nafter = " + most) + kEnd)),
      {"layer 'l0' (pad_channels)", "[8, 8, 4294967296]", "274877906944 elements",
       "at most 68719476736"});
  expect_words(
      fault_of(text(layer("embedding", "vocabulary = " + most + "\nwidth = " + most) + kEnd)),
      {"layer 'l0' (embedding)", "68719476736"});
  const std::string wide = layer("flatten", "") + layer("dense", "out = 1000000000", 1);
  expect_words(fault_of(image(wide + kEnd)),
               {"layer 'l1' (dense): parameter weight", "[1000000000, 128]"});
  // The same model is too large for one batch, and not for another.
  const std::string padded =
      layer("pad_channels", "after = 1000000") + layer("global_average_pool", "", 1) + kEnd;
  EXPECT_EQ(fault_of(image(padded), 2), "no error");
  expect_words(fault_of(image(padded), 1'000'000), {"layer 'l0' (pad_channels)", "[1000000, 8, 8"});
}

// A stride of 2^31 with ceil_mode leaves no window that begins in the input.
TEST(DefinitionLimits, PoolsWithoutAWindowAreRefusedOrHaveOne) {
  for (const std::string stride : {"2147483647", "1073741824", "65536", "9"})
    for (const std::string padding : {"0", "1"})
      for (const std::string kind : {"max_pool2d", "average_pool2d"}) {
        const std::string options =
            "ceil_mode = true\nwindow = 3\nstride = " + stride + "\npadding = " + padding;
        const std::string fault =
            fault_of(image(layer(kind, options) + layer("flatten", "", 1) + kEnd));
        if (fault != "no error") expect_words(fault, {"layer 'l0' (" + kind + ")", "[0, 0, 2]"});
      }
}

TEST(DefinitionLimits, OfLayersBytesAndLevels) {
  std::string many;
  for (int i = 0; i <= 10'000; ++i) many += "[[layer]]\nkind=\"relu\"\n";
  expect_words(fault_of(image(many)), {"m.toml: lists 10001 layers", "at most 10000"});
  expect_words(fault_of(image(std::string((1 << 20) + 1, '#'))), {"1048577 bytes", "1048576"});
  std::string deep = "x = ", dotted = "x";
  for (int i = 0; i < 100'000; ++i) deep += '[', dotted += ".x";
  expect_words(fault_of(image(deep)), {"m.toml: 64 levels"});
  expect_words(fault_of(image(dotted + " = 1")), {"m.toml: 64 levels"});
}

// Time that grew with the square of the layers made this one wait for half a minute.
TEST(DefinitionLimits, AsManyLayersAsAreAllowedAreBuiltAndPlanned) {
  std::string many = layer("flatten", "", 0);
  for (int i = 1; i < 9'999; ++i)
    many += i % 2 != 0 ? layer("dense", "out = 4", i) : layer("gelu", "", i);
  const models::ModelOptions options = image(many + kEnd);
  const engine::Graph graph = models::build_model("m.toml", options);
  const engine::Plan plan = engine::Plan::compile(graph, {.max_batch = 1});
  EXPECT_EQ(graph.nodes().size(), 10'003U);
  EXPECT_LT(plan.arena_bytes, std::size_t{4} << 20);
}

}  // namespace
