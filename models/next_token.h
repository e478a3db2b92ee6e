// Logits of the next token from a text model, for sampling.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/graph/executor.h"

namespace models {

// An inference plan for one sample, padded on the right: what comes later has no influence on a
// causal model.
class NextToken {
 public:
  // `graph` reads token ids [context] and gives logits [context, vocabulary]; throws
  // engine::ModelError for another. Graph, state (of that graph, f32 or f64) and threads outlive
  // this. Allocates here only.
  NextToken(const engine::Graph& graph, engine::ModelState& state, engine::ThreadPool& threads,
            engine::Products products = engine::Products::kF32);

  std::int64_t context() const { return static_cast<std::int64_t>(tokens_.size()); }
  std::int64_t vocabulary() const { return static_cast<std::int64_t>(logits_.size()); }

  // The logits [vocabulary] that follow `tokens`, of which the last context() count. Valid until
  // the next call. Throws engine::InputError for no token at all and for an id that is not in the
  // vocabulary.
  std::span<const double> logits_after(std::span<const std::int32_t> tokens);

 private:
  engine::Plan plan_;
  engine::Executor executor_;
  std::vector<std::int32_t> tokens_, labels_;
  std::vector<double> logits_;
};

}  // namespace models
