// Runs one padded sample through an inference.
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

engine::InferenceOptions of_one_sample(engine::InferenceOptions options,
                                       const engine::ModelState& state) {
  options.batch = 1;
  if (options.device.kind == engine::Device::Kind::kCpu)
    options.dtype = state.parameters.values.dtype();
  return options;
}

}  // namespace

NextToken::NextToken(const engine::Graph& graph, engine::ModelState& state,
                     engine::ThreadPool& threads, const engine::InferenceOptions& options)
    : inference_(checked(graph), state, threads, of_one_sample(options, state)),
      tokens_(static_cast<std::size_t>(graph.nodes()[0].shape[0])) {
  inference_.load();
}

std::span<const double> NextToken::logits_after(std::span<const std::int32_t> tokens) {
  if (tokens.empty()) throw engine::InputError("there is no token for another to follow");
  tokens = tokens.last(std::min(tokens.size(), tokens_.size()));
  for (const std::int32_t token : tokens)
    if (token < 0 || token >= vocabulary())
      throw engine::InputError("token " + std::to_string(token) + " is not in the vocabulary of " +
                               std::to_string(vocabulary()) + " tokens");
  std::fill(std::copy(tokens.begin(), tokens.end(), tokens_.begin()), tokens_.end(), 0);
  static constexpr std::int64_t kId = 0;
  inference_.predict(
      {.count = 1, .samples = {}, .tokens = tokens_, .labels = {}, .sample_ids = {&kId, 1}});
  return inference_.logits_of(static_cast<std::int64_t>(tokens.size()) - 1);
}

}  // namespace models
