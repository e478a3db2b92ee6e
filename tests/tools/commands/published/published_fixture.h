// Folders of published text models: committed ones, ones that published_models.py writes, and what
// the engine makes of them.
#pragma once

#include <string>
#include <vector>

#include "engine/graph/model_state.h"
#include "models/model_catalog.h"
#include "tests/support/test_support.h"

namespace published {

// A committed file, e.g. "golden_gpt2.npz".
std::string golden_file(const std::string& name);
// Makes the folder of a committed model, e.g. "golden_gpt2", which a test may change.
std::string copy_of(const std::string& name, const test_support::TemporaryDirectory& folder);
// Ids below 11, fewer than the 13 of the committed models, as a file of NumPy.
std::string token_file(std::size_t count);

// published_models.py with these arguments. Exit code 77 or 127: torch or transformers is missing.
test_support::CommandResult call_transformers(const std::vector<std::string>& arguments);
bool is_missing(const test_support::CommandResult& result);

// The model of a folder, with its weights.
struct PublishedNetwork {
  PublishedNetwork(const std::string& folder, std::int64_t positions, engine::DType dtype);
  // [count, positions, vocabulary]
  std::vector<double> logits(const std::vector<std::int64_t>& tokens);
  // The mean loss before each update by AdamW.
  std::vector<double> losses(const std::vector<std::int64_t>& batches,
                             const std::vector<std::int64_t>& labels);

  std::int64_t positions;
  engine::DType dtype;
  engine::Graph graph;
  engine::ModelState state;
};

// Expects the logits of the file NPZ to 1e-5 of the largest one in f32, and its losses to 1e-9.
void expect_numbers_of(const std::string& folder, const std::string& npz);

}  // namespace published
