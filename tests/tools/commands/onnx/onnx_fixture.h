// Models with weights that are far from their initial values, and their logits by the engine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/graph/model_state.h"
#include "io/interchange/onnx_writer.h"
#include "models/model_catalog.h"
#include "tests/support/test_support.h"

namespace onnx_fixture {

// A network from a file, with its parameters.
struct Network {
  explicit Network(const std::string& path, engine::DType dtype = engine::DType::kF32,
                   bool is_regression = false);
  models::ModelOptions options;
  engine::Graph graph;
  engine::ModelState state;
  std::vector<std::string> left_out;
};

// Initial values, but norms, biases and running statistics drawn around them.
engine::ModelState random_state(const engine::Graph& graph);

// Numbers in [-1, 1), of samples in the engine's order; or token ids below `vocabulary`.
std::vector<float> random_samples(std::int64_t count, std::uint64_t seed);
std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t vocabulary,
                                        std::uint64_t seed);

// [n, h, w, c] -> [n, c, h, w]
std::vector<float> channels_first(const std::vector<float>& samples, const engine::Shape& item);
// [n, c, h, w] -> [n, h, w, c]
std::vector<float> channels_last(const std::vector<float>& samples, const engine::Shape& item);

std::vector<float> logits_of_images(const engine::Graph& graph, engine::ModelState& state,
                                    std::int64_t count, const std::vector<float>& samples);
std::vector<float> logits_of_tokens(const engine::Graph& graph, engine::ModelState& state,
                                    std::int64_t count, const std::vector<std::int32_t>& tokens);

io::NamedArray floats(const std::string& name, const std::vector<float>& values,
                      std::vector<std::int64_t> shape);
// As ONNX takes them.
io::NamedArray integers(const std::string& name, const std::vector<std::int32_t>& values,
                        std::vector<std::int64_t> shape);

// The engine's logits against onnxruntime's (onnx_check.py), by the Python of PEER_PYTHON.
// `python_is_missing()`: why not, else "".
std::string peer_python();
std::string python_is_missing();
test_support::CommandResult compare_in_onnxruntime(const std::string& model_path,
                                                   const std::vector<io::NamedArray>& cases);
void expect_equal_in_onnxruntime(const std::string& model_path,
                                 const std::vector<io::NamedArray>& cases);

// Lets a script of this folder write its files, by more arguments if there are some. Returns which
// packages are missing, or "".
std::string missing_after_script(const std::string& script, const std::string& folder,
                                 const std::vector<std::string>& more = {});

}  // namespace onnx_fixture
