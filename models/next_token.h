// Computes the logits of the next token with a text model, for sampling.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/graph/inference.h"

namespace models {

// An inference plan for one sample, padded on the right: later tokens have no influence in a causal
// model.
class NextToken {
 public:
  // `graph` must read token ids [context] and produce logits [context, vocabulary]; otherwise
  // throws engine::ModelError. Graph, state (of that graph, f32 or f64) and threads must outlive
  // this. Of `options`, device, products and, on a device, the dtype of activations are used.
  // Memory is allocated here and in the first call; on a device, the state is copied here.
  NextToken(const engine::Graph& graph, engine::ModelState& state, engine::ThreadPool& threads,
            const engine::InferenceOptions& options = {});

  std::int64_t context() const { return static_cast<std::int64_t>(tokens_.size()); }
  std::int64_t vocabulary() const { return inference_.classes(); }

  // Returns the logits [vocabulary] after `tokens`, of which only the last context() are used.
  // Valid until the next call. Throws engine::InputError if there is no token, or if an id is not
  // in the vocabulary.
  std::span<const double> logits_after(std::span<const std::int32_t> tokens);

 private:
  engine::Inference inference_;
  std::vector<std::int32_t> tokens_;
};

}  // namespace models
