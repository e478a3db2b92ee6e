// Arrays of other programs as a model's state: names and shapes that differ without another
// meaning.
#include "engine/train/saving/weights.h"

#include <gtest/gtest.h>

#include <cstring>

#include "engine/layers/layers.h"
#include "tests/engine/graph/graph_harness.h"
#include "tests/support/array_numbers.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"

namespace {

namespace layers = engine::layers;
using engine::Graph, engine::NodeId;
using test_support::floats;

// Layers gate [2, 4] with a bias [2], a norm of 8 numbers, a parameter [2, 2, 2], fc [3, 8].
Graph model() {
  return test_support::classifier({2, 2, 4}, [](Graph& g, NodeId x) {
    const NodeId gate = g.add("gate", layers::dense(2), {x});
    const NodeId flat = g.add("flat", layers::flatten(), {gate});
    const NodeId norm = g.add("norm", layers::layer_norm(), {flat});
    return g.add("fc", layers::dense(3, false), {norm});
  });
}

std::vector<double> values_of(const engine::ModelState& state, const std::string& name) {
  for (const engine::ModelState::Entry& entry : state.entries)
    if (entry.name == name) return test_support::to_doubles(state.view(entry));
  return {};
}

class WeightsTest : public testing::Test {
 protected:
  std::string fault(const std::vector<io::NamedArray>& arrays) {
    return test_support::error_or<io::DataError>(
        [&] { engine::import_state(arrays, "w.pth", /*exact=*/false, state_); }, "no error");
  }
  const Graph graph_ = model();
  engine::ModelState state_ = engine::ModelState::allocate(graph_, engine::DType::kF32);
};

TEST_F(WeightsTest, ExtentsOfOneAndNormsOfSeveralDimensionsMeanTheSame) {
  const std::vector<io::NamedArray> arrays{
      floats("gate.weight", {2, 4, 1, 1}, 1), floats("gate.bias", {2}, 10),
      floats("norm.weight", {2, 2, 2}, 20), floats("norm.bias", {8}, 30),
      floats("fc.weight", {3, 8}, 40)};
  EXPECT_TRUE(engine::import_state(arrays, "w.pth", /*exact=*/false, state_).empty());
  EXPECT_EQ(values_of(state_, "norm.weight"),
            (std::vector<double>{20, 21, 22, 23, 24, 25, 26, 27}));
  const engine::TensorView gate = state_.view(state_.entries[0]);
  std::vector<float> file(8);
  state_.layout(state_.entries[0])
      .to_file(static_cast<const std::byte*>(gate.data), file.data(), 4);
  EXPECT_EQ(file, (std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST_F(WeightsTest, OtherShapesOfAsManyNumbersAreRejected) {
  EXPECT_VALUES(fault({floats("gate.weight", {4, 2}, 1), floats("gate.bias", {2}, 10),
                       floats("norm.weight", {8}, 20), floats("norm.bias", {8}, 30),
                       floats("fc.weight", {3, 8}, 40)}),
                "'gate.weight' [4, 2], [2, 4]");
}

TEST_F(WeightsTest, TwoArraysOfOneNameAreRejected) {
  for (const char* name : {"module.gate.bias", "_orig_mod.module.gate.bias"})
    EXPECT_VALUES(fault({floats("gate.weight", {2, 4}, 1), floats("gate.bias", {2}, 10),
                         floats(name, {2}, 50), floats("norm.weight", {8}, 20),
                         floats("norm.bias", {8}, 30), floats("fc.weight", {3, 8}, 40)}),
                  "w.pth: 'gate.bias' '" + std::string(name) + "' 'gate.bias'");
}

// As state_dict() has parameters of a module itself and of MultiheadAttention.
TEST_F(WeightsTest, NamesOfStateDictsAreAccepted) {
  EXPECT_EQ(fault({floats("gate.in_proj_weight", {2, 4}, 1), floats("gate.in_proj_bias", {2}, 10),
                   floats("norm", {8}, 20), floats("norm.bias", {8}, 30),
                   floats("fc.weight", {3, 8}, 40)}),
            "no error");
  EXPECT_EQ(values_of(state_, "norm.weight")[0], 20);
  EXPECT_VALUES(fault({floats("gate.weight", {2, 4}, 1), floats("gate.bias", {2}, 10),
                       floats("norm.weight", {8}, 20), floats("norm", {8}, 20),
                       floats("norm.bias", {8}, 30), floats("fc.weight", {3, 8}, 40)}),
                "'norm' model");
}

}  // namespace
