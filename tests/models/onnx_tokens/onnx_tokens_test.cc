// Translations of networks that read token ids: what becomes one layer, and what is rejected.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "engine/core/error.h"
#include "io/interchange/onnx_writer.h"
#include "models/onnx_import/onnx_import.h"
#include "tests/models/onnx_import/onnx_constants.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

using onnx_constants::floats, onnx_constants::integers, onnx_constants::scalar,
    onnx_constants::Ints;

io::OnnxNode made(const std::string& type, const std::vector<std::string>& inputs,
                  const std::string& to, std::vector<io::OnnxAttribute> attributes = {}) {
  return {type, to, inputs, {to}, std::move(attributes)};
}

class OnnxTokensTest : public testing::Test {
 protected:
  // The nodes go from "ids", [batch, 4], to "y".
  models::OnnxImport imported(const std::vector<io::OnnxNode>& nodes,
                              std::vector<io::NamedArray> constants,
                              const std::vector<io::OnnxDimension>& input = {"batch", 4}) {
    io::OnnxModel model;
    model.inputs = {{.name = "ids", .type = io::DType::kI64, .shape = input}};
    for (const std::string& name : more_inputs_)
      model.inputs.push_back({.name = name, .type = io::DType::kI64, .shape = input});
    model.outputs = {{.name = "y", .shape = {"batch", 3}}};
    model.nodes = nodes;
    model.constants = std::move(constants);
    io::save_onnx(model, path_);
    return models::import_onnx(io::OnnxReader(path_), models::OnnxArrays::kLoad);
  }
  std::string error_of(const std::vector<io::OnnxNode>& nodes,
                       const std::vector<io::NamedArray>& constants,
                       const std::vector<io::OnnxDimension>& input = {"batch", 4}) {
    return test_support::error_or<engine::ModelError>([&] { imported(nodes, constants, input); },
                                                      "no error");
  }
  static std::vector<io::OnnxNode> classifier() {
    return {made("Gather", {"table.weight", "ids"}, "rows"),
            made("ReduceMean", {"rows", "one"}, "mean", {{"keepdims", std::int64_t{0}}}),
            made("Gemm", {"mean", "fc.weight"}, "y", {{"transB", std::int64_t{1}}})};
  }
  static std::vector<io::NamedArray> constants() {
    return {floats("table.weight", {9, 2}), floats("fc.weight", {3, 2}), integers("one", {1})};
  }

  const test_support::TemporaryDirectory folder_;
  const std::string path_ = folder_ / "net.onnx";
  std::vector<std::string> more_inputs_;
};

TEST_F(OnnxTokensTest, RowsOfATableAreAnEmbedding) {
  const models::OnnxImport found = imported(classifier(), constants());
  EXPECT_CONTAINS(found.definition, "sample_shape = [4]\nlabel_shape = []\nclasses = 3\n");
  EXPECT_CONTAINS(found.definition,
                  "kind = \"embedding\"\nname = \"table\"\ninputs = [\"input\"]\nvocabulary = "
                  "9\nwidth = 2\n");
  EXPECT_EQ(found.heads, std::vector<std::string>{"fc"});
  ASSERT_TRUE(found.text.has_value());
  EXPECT_EQ(found.text->length, 4);
  EXPECT_EQ(found.text->vocabulary, 0);
}

TEST_F(OnnxTokensTest, ShapesAndTypesOfIdsMayBeRepeated) {
  std::vector<io::OnnxNode> nodes = classifier();
  nodes[0].inputs[1] = "same";
  nodes.insert(nodes.begin(), {made("Cast", {"ids"}, "whole", {{"to", std::int64_t{7}}}),
                               made("Reshape", {"whole", "rows_of_4"}, "same")});
  std::vector<io::NamedArray> all = constants();
  all.push_back(integers("rows_of_4", {-1, 4}));
  EXPECT_EQ(imported(nodes, all).definition, imported(classifier(), constants()).definition);
  all.back() = integers("rows_of_4", {-1, 2});
  EXPECT_VALUES(error_of(nodes, all), "'same' (Reshape): token ids [batch, 4] [-1, 2]");
}

// The scores of each position: [batch, length, vocabulary].
TEST_F(OnnxTokensTest, TheTableIsTheMatrixOfTheLastLayer) {
  const models::OnnxImport found =
      imported({made("Gather", {"table.weight", "ids"}, "rows"),
                {"Transpose", "turn", {"table.weight"}, {"turned"}, {{"perm", Ints{1, 0}}}},
                made("MatMul", {"rows", "turned"}, "y")},
               {floats("table.weight", {9, 2})});
  EXPECT_CONTAINS(found.definition, "tied = \"table\"\n");
  EXPECT_CONTAINS(found.definition, "sample_shape = [4]\nlabel_shape = [4]\nclasses = 9\n");
  EXPECT_TRUE(found.heads.empty());
  ASSERT_TRUE(found.text.has_value());
  EXPECT_EQ(found.text->vocabulary, 9);
  EXPECT_EQ(found.arrays.size(), 1U);
}

// Position i has an embedding of its own; a shorter text has the first of them.
TEST_F(OnnxTokensTest, TheFirstRowsOfPositionsAreAPart) {
  std::vector<io::OnnxNode> nodes = classifier();
  nodes.insert(nodes.begin() + 1, {made("Gather", {"positions.weight", "places"}, "first"),
                                   made("Add", {"rows", "first"}, "sum")});
  nodes[3].inputs[0] = "sum";
  std::vector<io::NamedArray> all = constants();
  all.push_back(floats("positions.weight", {4, 2}));
  all.push_back(integers("places", {0, 1, 2, 3}));
  const std::string whole = imported(nodes, all).definition;
  EXPECT_CONTAINS(whole, "kind = \"parameter\"\nname = \"positions\"\n");
  EXPECT_EQ(whole.find("\"slice\""), std::string::npos) << whole;
  EXPECT_EQ(whole.find("\"gather\""), std::string::npos) << whole;
  all[3] = floats("positions.weight", {6, 2});
  const std::string part = imported(nodes, all).definition;
  EXPECT_CONTAINS(part, "kind = \"slice\"");
  EXPECT_EQ(part.find("\"gather\""), std::string::npos) << part;
}

class CausalMask : public OnnxTokensTest {
 protected:
  // Attention with two heads of one number, and a mask before the softmax.
  models::OnnxImport attention(const std::vector<io::OnnxNode>& mask,
                               const std::vector<io::NamedArray>& more) {
    const auto by_head = [](const std::string& from, const std::string& to, const Ints& order) {
      return std::vector<io::OnnxNode>{made("Reshape", {from, "heads"}, to + "_heads"),
                                       {"Transpose", to, {to + "_heads"}, {to}, {{"perm", order}}}};
    };
    std::vector<io::OnnxNode> nodes{
        made("Gather", {"table.weight", "ids"}, "rows"),
        made("MatMul", {"rows", "qkv.weight"}, "all"),
        {"Split", "split", {"all", "parts"}, {"a", "b", "c"}, {{"axis", std::int64_t{2}}}}};
    for (const auto& part : {by_head("a", "q", {0, 2, 1, 3}), by_head("b", "k", {0, 2, 3, 1}),
                             by_head("c", "v", {0, 2, 1, 3})})
      nodes.insert(nodes.end(), part.begin(), part.end());
    nodes.push_back(made("MatMul", {"q", "k"}, "scores"));
    nodes.insert(nodes.end(), mask.begin(), mask.end());
    nodes.push_back(made("Softmax", {"masked"}, "weights", {{"axis", std::int64_t{-1}}}));
    nodes.push_back(made("MatMul", {"weights", "v"}, "mixed"));
    nodes.push_back({"Transpose", "back", {"mixed"}, {"turned"}, {{"perm", Ints{0, 2, 1, 3}}}});
    nodes.push_back(made("Reshape", {"turned", "flat"}, "joined"));
    nodes.push_back(made("ReduceMean", {"joined", "one"}, "mean", {{"keepdims", std::int64_t{0}}}));
    nodes.push_back(made("Gemm", {"mean", "fc.weight"}, "y", {{"transB", std::int64_t{1}}}));
    std::vector<io::NamedArray> all = constants();
    all.push_back(floats("qkv.weight", {2, 6}));
    all.push_back(integers("parts", {2, 2, 2}));
    all.push_back(integers("heads", {0, 0, 2, 1}));
    all.push_back(integers("flat", {0, 0, 2}));
    all.insert(all.end(), more.begin(), more.end());
    return imported(nodes, all);
  }
  // 1 up to the diagonal, or these numbers.
  static io::NamedArray triangle(const std::string& name, float below = 1, float above = 0) {
    io::NamedArray all = floats(name, {4, 4});
    for (std::size_t i = 0; i < 4; ++i)
      for (std::size_t j = 0; j < 4; ++j) {
        const io::NamedArray number = scalar("", j > i ? above : below);
        std::copy(number.data.begin(), number.data.end(),
                  all.data.begin() + static_cast<std::ptrdiff_t>(4 * (4 * i + j)));
      }
    return all;
  }
};

TEST_F(CausalMask, OfABufferMakesAttentionCausal) {
  const std::vector<io::OnnxNode> choice{made("Equal", {"attn.bias", "zero"}, "is_later"),
                                         made("Where", {"is_later", "minus", "scores"}, "masked")};
  const io::NamedArray zero = scalar("zero", 0),
                       minus = scalar("minus", -std::numeric_limits<float>::infinity());
  const models::OnnxImport found = attention(choice, {triangle("attn.bias"), zero, minus});
  EXPECT_CONTAINS(found.definition, "kind = \"causal_self_attention\"");
  for (const char* kind : {"softmax", "constant", "parameter", "matmul"})
    EXPECT_EQ(found.definition.find(std::string("\"") + kind + "\""), std::string::npos) << kind;
  for (const io::NamedArray& array : found.arrays) EXPECT_NE(array.name, "attn.bias");
  // A mask that is not causal stays one.
  const models::OnnxImport other = attention(choice, {triangle("attn.bias", 0, 1), zero, minus});
  EXPECT_EQ(other.definition.find("causal"), std::string::npos) << other.definition;
}

TEST_F(CausalMask, MayBeAddedAndItsSoftmaxCheckedForNumbers) {
  const float lowest = std::numeric_limits<float>::lowest();
  const models::OnnxImport found =
      attention({made("Add", {"scores", "mask"}, "masked")}, {triangle("mask", 0, lowest)});
  EXPECT_CONTAINS(found.definition, "kind = \"causal_self_attention\"");
  // Small numbers do not exclude later positions.
  const models::OnnxImport other =
      attention({made("Add", {"scores", "mask"}, "masked")}, {triangle("mask", 0, -3)});
  EXPECT_EQ(other.definition.find("causal"), std::string::npos) << other.definition;
  EXPECT_CONTAINS(other.definition, "kind = \"softmax\"");
}

TEST_F(CausalMask, OfZerosAloneIsLeftOut) {
  const models::OnnxImport found = attention(
      {made("ConstantOfShape", {"square"}, "mask"), made("Add", {"scores", "mask"}, "masked")},
      {integers("square", {4, 4})});
  EXPECT_CONTAINS(found.definition, "kind = \"self_attention\"");
}

// The softmax of scores to earlier positions is a number, and its check is left out.
TEST_F(CausalMask, NeedsNoCheckForNumbers) {
  const float lowest = std::numeric_limits<float>::lowest();
  const models::OnnxImport found = attention(
      {made("Add", {"scores", "mask"}, "sum"),
       made("Softmax", {"sum"}, "first", {{"axis", std::int64_t{-1}}}),
       made("IsNaN", {"first"}, "is_nan"), made("Where", {"is_nan", "zero", "first"}, "masked")},
      {triangle("mask", 0, lowest), scalar("zero", 0)});
  for (const char* kind : {"where", "compare"})
    EXPECT_EQ(found.definition.find(std::string("kind = \"") + kind), std::string::npos)
        << found.definition;
}

TEST_F(OnnxTokensTest, OtherUsesOfIdsAreRejected) {
  std::vector<io::OnnxNode> nodes = classifier();
  nodes.insert(nodes.begin(), made("Equal", {"ids", "one"}, "is_padding"));
  EXPECT_VALUES(error_of(nodes, constants()),
                "node 'is_padding' (Equal): token ids, Gather embedding (axis 0);");
  nodes = classifier();
  nodes[0].attributes = {{"axis", std::int64_t{1}}};
  EXPECT_VALUES(error_of(nodes, constants()),
                "token ids [9, 2] axis 1, (axis 0) [vocabulary, width]");
}

TEST_F(OnnxTokensTest, OtherInputsAreRejected) {
  EXPECT_VALUES(error_of(classifier(), constants(), {"batch", "length"}),
                "input 'ids' [?, ?], token ids, [batch, length], fixed length");
  EXPECT_CONTAINS(error_of(classifier(), constants(), {"batch"}), "is [?], expected token ids");
  more_inputs_ = {"mask"};
  EXPECT_VALUES(error_of(classifier(), constants()), "graph 2 inputs, 1:");
}

// Exports without optimization contain these.
TEST_F(OnnxTokensTest, EntriesOfConstantsAreComputed) {
  std::vector<io::OnnxNode> nodes = classifier();
  nodes.insert(nodes.begin() + 1, {made("GatherElements", {"numbers", "order"}, "chosen"),
                                   made("GatherND", {"chosen", "third"}, "factor"),
                                   made("CastLike", {"factor", "rows"}, "real"),
                                   made("Mul", {"rows", "real"}, "scaled")});
  nodes[5].inputs[0] = "scaled";
  std::vector<io::NamedArray> all = constants();
  all.push_back(integers("numbers", {10, 20, 30}));
  all.push_back(integers("order", {2, 0, -2}));
  io::NamedArray third = integers("third", {2});
  all.push_back(third);
  EXPECT_CONTAINS(imported(nodes, all).definition, "scale = 20\n");
  all[4] = integers("order", {2, 0, 3});
  EXPECT_CONTAINS(error_of(nodes, all), "entry 3 of 3");
  all[4] = integers("order", {2, 0, 1});
  all[5] = integers("third", {7});
  EXPECT_CONTAINS(error_of(nodes, all), "entry 7 of 3");
}

TEST_F(OnnxTokensTest, PartsOfASequenceAreThoseOfASplit) {
  std::vector<io::OnnxNode> nodes = classifier();
  nodes.insert(nodes.begin() + 1,
               {made("SplitToSequence", {"rows", "lengths"}, "parts", {{"axis", std::int64_t{2}}}),
                made("SequenceAt", {"parts", "last"}, "second")});
  nodes[3].inputs[0] = "second";
  std::vector<io::NamedArray> all = constants();
  all[1] = floats("fc.weight", {3, 1});
  all.push_back(integers("lengths", {1, 1}));
  all.push_back(integers("last", {-1}));
  EXPECT_CONTAINS(imported(nodes, all).definition, "kind = \"slice\"");
  all[4] = integers("last", {2});
  EXPECT_CONTAINS(error_of(nodes, all), "entry 2 of 2");
}

// softmax(q k^T + mask) v of three layers, as tutorials have it; without the mask it stays as it
// is.
TEST_F(OnnxTokensTest, CausalAttentionOfThreeLayersIsOneLayer) {
  std::vector<io::OnnxNode> nodes = classifier();
  nodes.insert(
      nodes.begin() + 1,
      {made("MatMul", {"rows", "q.weight"}, "q"), made("MatMul", {"rows", "k.weight"}, "k"),
       made("MatMul", {"rows", "v.weight"}, "v"),
       made("Transpose", {"k"}, "turned", {{"perm", Ints{0, 2, 1}}}),
       made("MatMul", {"q", "turned"}, "product"), made("Mul", {"product", "size"}, "scores"),
       made("Add", {"scores", "mask"}, "masked"), made("Softmax", {"masked"}, "weights"),
       made("MatMul", {"weights", "v"}, "read")});
  nodes[10].inputs[0] = "read";
  std::vector<io::NamedArray> all = constants();
  for (const char* name : {"q.weight", "k.weight", "v.weight"}) all.push_back(floats(name, {2, 2}));
  all.push_back(scalar("size", std::sqrt(0.5F)));
  io::NamedArray mask = floats("mask", {4, 4}, 0);
  std::vector<float> numbers(16, 0);
  for (std::size_t i = 0; i < 16; ++i)
    if (i % 4 > i / 4) numbers[i] = -INFINITY;
  std::memcpy(mask.data.data(), numbers.data(), mask.data.size());
  all.push_back(mask);
  const std::string found = imported(nodes, all).definition;
  EXPECT_CONTAINS(found, "inputs = [\"q\", \"k\", \"v\"]\n");
  EXPECT_CONTAINS(found, "kind = \"causal_self_attention\"");
  EXPECT_EQ(found.find("kind = \"softmax\""), std::string::npos);
  nodes[8].inputs[0] = "scores";
  EXPECT_CONTAINS(imported(nodes, all).definition, "kind = \"softmax\"");
}

// Attention of [batch, length, heads * size], as operator set 23 has it.
class AttentionOfSet23 : public OnnxTokensTest {
 protected:
  static std::vector<io::OnnxNode> nodes(std::vector<std::string> inputs,
                                         std::vector<io::OnnxAttribute> more = {},
                                         std::int64_t key_heads = 2) {
    std::vector<io::OnnxNode> all = classifier();
    more.insert(more.end(), {{"q_num_heads", std::int64_t{2}}, {"kv_num_heads", key_heads}});
    all.insert(all.begin() + 1, made("Attention", std::move(inputs), "read", std::move(more)));
    all[2].inputs[0] = "read";
    return all;
  }
  static std::vector<io::NamedArray> with_mask(const io::NamedArray& mask) {
    std::vector<io::NamedArray> all = constants();
    all.push_back(mask);
    return all;
  }
};

TEST_F(AttentionOfSet23, IsProductsAndASoftmax) {
  const std::string plain = imported(nodes({"rows", "rows", "rows"}), constants()).definition;
  EXPECT_CONTAINS(plain, "kind = \"softmax\"");
  EXPECT_EQ(plain.find("kind = \"add\""), std::string::npos);
  const models::OnnxImport causal =
      imported(nodes({"rows", "rows", "rows"}, {{"is_causal", std::int64_t{1}}}), constants());
  EXPECT_CONTAINS(causal.definition, "kind = \"causal_self_attention\"");
  EXPECT_CONTAINS(
      imported(nodes({"rows", "rows", "rows"}, {{"scale", 0.25F}}), constants()).definition,
      "scale = 0.25\n");
  // The mask of two positions is the same for all samples and heads.
  io::NamedArray mask = integers("mask", {1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1});
  mask.shape = {4, 4};
  const models::OnnxImport masked =
      imported(nodes({"rows", "rows", "rows", "mask"}), with_mask(mask));
  EXPECT_EQ(masked.definition, causal.definition);
  ASSERT_EQ(masked.arrays.size(), causal.arrays.size());
  for (std::size_t i = 0; i < masked.arrays.size(); ++i)
    EXPECT_EQ(masked.arrays[i].data, causal.arrays[i].data) << masked.arrays[i].name;
}

// Infinite numbers are no parameter, also without a signature in the file.
TEST_F(AttentionOfSet23, AMaskOfNeighborsIsNotTrained) {
  io::NamedArray mask = floats("mask", {4, 4}, 0);
  std::vector<float> numbers(16, 0);
  for (std::size_t i = 0; i < 16; ++i)
    if (i / 4 > i % 4 + 1 || i / 4 + 1 < i % 4) numbers[i] = -INFINITY;
  std::memcpy(mask.data.data(), numbers.data(), mask.data.size());
  const std::string found =
      imported(nodes({"rows", "rows", "rows", "mask"}), with_mask(mask)).definition;
  EXPECT_CONTAINS(found, "kind = \"constant\"");
  EXPECT_EQ(found.find("kind = \"parameter\""), std::string::npos);
}

TEST_F(AttentionOfSet23, WhatHasNoTranslationIsNamed) {
  const std::vector<std::string> rows{"rows", "rows", "rows"};
  EXPECT_CONTAINS(error_of(nodes(rows, {{"softcap", 30.0F}}), constants()), "softcap");
  EXPECT_CONTAINS(error_of(nodes({"rows", "rows", "rows", "", "rows", "rows"}), constants()),
                  "opset_version=18");
  EXPECT_CONTAINS(error_of(nodes(rows, {}, 4), constants()), "Attention");
  EXPECT_CONTAINS(error_of(nodes(rows, {}, 0), constants()), "[batch, heads, length, size]");
  const io::NamedArray mask = test_support::floats("mask", {4, 4}, -INFINITY);
  EXPECT_CONTAINS(error_of(nodes({"rows", "rows", "rows", "mask"}), with_mask(mask)),
                  "without any key");
}

// A mask of padding, of [batch, 1, 1, 4] booleans `keep`, in which `more` nodes have their part.
class ComputedMask : public AttentionOfSet23 {
 protected:
  static std::vector<io::OnnxNode> masked(const std::vector<io::OnnxNode>& more) {
    std::vector<io::OnnxNode> all{
        classifier()[0], made("Gather", {"rows", "place"}, "numbers", {{"axis", std::int64_t{2}}}),
        made("Greater", {"numbers", "limit"}, "is_word"),
        made("Unsqueeze", {"is_word", "axes"}, "keep")};
    all.insert(all.end(), more.begin(), more.end());
    const std::vector<io::OnnxNode> last = nodes({"rows", "rows", "rows", "mask"});
    all.insert(all.end(), last.begin() + 1, last.end());
    return all;
  }
  static std::vector<io::NamedArray> numbers() {
    std::vector<io::NamedArray> all = constants();
    io::NamedArray place = integers("place", {0}), square = integers("earlier", Ints(16, 1));
    place.shape = {};
    square.shape = {4, 4};
    square.type = io::DType::kU8;
    square.data.assign(16, std::byte{1});
    all.insert(all.end(),
               {place, square, scalar("limit", -100), integers("axes", {1, 2}),
                integers("wide", {-1, 1, 4, 4}), integers("zero", {0}), integers("two", {2}),
                integers("last", {3}), scalar("all", 1), scalar("lowest", -1e4F)});
    return all;
  }
};

TEST_F(ComputedMask, OfBooleansIsRejected) {
  const std::vector<std::vector<io::OnnxNode>> masks{
      {made("And", {"earlier", "keep"}, "mask")},
      {made("Or", {"keep", "earlier"}, "mask")},
      {made("Not", {"keep"}, "mask")},
      {made("Expand", {"keep", "wide"}, "mask")},
      {made("Slice", {"keep", "zero", "two", "last"}, "part"),
       made("Concat", {"part", "part"}, "mask", {{"axis", std::int64_t{3}}})},
      {made("Where", {"keep", "earlier", "keep"}, "mask")},
      {made("Cast", {"keep"}, "float", {{"to", std::int64_t{1}}}),
       made("Cast", {"float"}, "mask", {{"to", std::int64_t{9}}})}};
  for (const std::vector<io::OnnxNode>& mask : masks)
    EXPECT_VALUES(error_of(masked(mask), numbers()), "(Attention): comparisons")
        << mask.back().type;
}

TEST_F(ComputedMask, OfNumbersIsAdded) {
  const io::OnnxNode number = made("Cast", {"keep"}, "float", {{"to", std::int64_t{1}}});
  const std::string found = imported(masked({number, made("Sub", {"all", "float"}, "is_padding"),
                                             made("Mul", {"is_padding", "lowest"}, "mask")}),
                                     numbers())
                                .definition;
  EXPECT_CONTAINS(found, "scale = -10000");
  EXPECT_CONTAINS(imported(masked({number, made("Log", {"float"}, "mask")}), numbers()).definition,
                  "kind = \"compare\"");
}

// Without a weight of its own that is trained, it is made of other layers.
TEST_F(OnnxTokensTest, RmsNormalizationIsALayer) {
  std::vector<io::OnnxNode> nodes = classifier();
  nodes.insert(nodes.begin() + 1,
               made("RMSNormalization", {"rows", "norm.weight"}, "normed", {{"epsilon", 1e-6F}}));
  nodes[2].inputs[0] = "normed";
  std::vector<io::NamedArray> all = constants();
  all.push_back(floats("norm.weight", {2}));
  EXPECT_CONTAINS(imported(nodes, all).definition, "kind = \"rms_norm\"\nname = \"norm\"\n");
  nodes[1].attributes[0] = {"axis", std::int64_t{1}};  // also over the positions
  EXPECT_CONTAINS(imported(nodes, all).definition, "kind = \"reduce\"");
  nodes[1].attributes[0] = {"axis", std::int64_t{0}};
  EXPECT_CONTAINS(error_of(nodes, all), "over [batch, 4, 2]");
}

}  // namespace
