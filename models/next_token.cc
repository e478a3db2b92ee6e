// Runs one padded sample through an inference plan.
#include "models/next_token.h"

#include <algorithm>
#include <string>

namespace models {
namespace {

const engine::Graph& checked(const engine::Graph& graph) {
  const engine::Graph::Node& input = graph.nodes().at(0);
  const engine::Shape& logits = graph.nodes().at(static_cast<std::size_t>(graph.logits())).shape;
  if (input.layer || input.dtype != engine::DType::kI32 || input.shape.rank() != 1 ||
      logits.rank() != 2 || logits[0] != input.shape[0])
    throw engine::ModelError(
        "expected a model of text, from token ids [context] to logits [context, vocabulary], got "
        "one from " +
        input.shape.to_string() + " to " + logits.to_string());
  return graph;
}

}  // namespace

NextToken::NextToken(const engine::Graph& graph, engine::ModelState& state,
                     engine::ThreadPool& threads, engine::Products products)
    : plan_(engine::Plan::compile(checked(graph), {.max_batch = 1,
                                                   .dtype = state.parameters.values.dtype(),
                                                   .threads = threads.threads(),
                                                   .training = false,
                                                   .products = products})),
      executor_(plan_, state, threads, 0),
      tokens_(static_cast<std::size_t>(graph.nodes()[0].shape[0])),
      labels_(tokens_.size()),
      logits_(static_cast<std::size_t>(executor_.logits().shape[2])) {}

std::span<const double> NextToken::logits_after(std::span<const std::int32_t> tokens) {
  if (tokens.empty()) throw engine::InputError("there is no token for another to follow");
  tokens = tokens.last(std::min(tokens.size(), tokens_.size()));
  for (const std::int32_t token : tokens)
    if (token < 0 || token >= vocabulary())
      throw engine::InputError("token " + std::to_string(token) + " is not in the vocabulary of " +
                               std::to_string(vocabulary()) + " tokens");
  std::fill(std::copy(tokens.begin(), tokens.end(), tokens_.begin()), tokens_.end(), 0);
  executor_.forward(
      {.count = 1, .samples = {}, .tokens = tokens_, .labels = labels_, .sample_ids = {}}, false);
  const engine::TensorView all = executor_.logits();
  const std::size_t first = (tokens.size() - 1) * logits_.size();
  const auto take = [&](const auto& values) {
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(first), logits_.size(),
                logits_.begin());
  };
  if (all.dtype == engine::DType::kF64)
    take(all.span<double>());
  else
    take(all.span<float>());
  return logits_;
}

}  // namespace models
