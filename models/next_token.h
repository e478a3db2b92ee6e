// Computes the logits of the next token of texts with a text model, for sampling.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/graph/inference.h"

namespace models {

// Keys and values of earlier positions are kept, on a CUDA device in its memory, so that a text
// that grows by a token costs one position (engine::Inference::extend). Models with layers that
// cannot do this, and products in bf16 on the CPU, compute the whole context each time: an
// inference plan for one sample, padded on the right; later tokens have no influence in a causal
// model.
class NextToken {
 public:
  static constexpr std::int64_t kMaxTexts = 64;

  // `graph` must read token ids [context] and produce logits [context, vocabulary]; otherwise
  // throws engine::ModelError. Graph, state (of that graph, f32 or f64) and threads must outlive
  // this. Of `options`, device, products, packed and, on a device, the dtype of activations are
  // used. `texts`: computed at once, 1 to kMaxTexts. Memory is allocated here and in the first
  // call; on a device, the state is copied here.
  NextToken(const engine::Graph& graph, engine::ModelState& state, engine::ThreadPool& threads,
            const engine::InferenceOptions& options = {}, std::int64_t texts = 1);
  ~NextToken();

  std::int64_t context() const { return context_; }
  std::int64_t vocabulary() const { return vocabulary_; }
  bool keeps_positions() const { return keeps_positions_; }

  // Computes the logits after each text, of which only the last context() tokens are used; what was
  // computed for the same first tokens of that text in the last call is used again. At most as many
  // texts as in the constructor. In float32 on the CPU, the logits of a text have the same bits in
  // any company; otherwise they are equal up to rounding. Throws engine::InputError if a text has
  // no token, or if an id is not in the vocabulary.
  using Tokens = std::span<const std::int32_t>;
  void compute(std::span<const Tokens> texts);
  // Returns the logits [vocabulary] after a text of the last call of compute().
  std::span<const double> logits_of(std::size_t text) const;
  // The same for one text, valid until the next call.
  std::span<const double> logits_after(Tokens tokens);

 private:
  void compute_whole(std::size_t text, Tokens tokens);
  void compute_first(std::size_t text, Tokens tokens);
  void compute_last(std::span<const Tokens> texts);

  const std::int64_t context_, vocabulary_, texts_;
  const bool keeps_positions_;
  const std::int64_t positions_;  // of a text that are computed at once, if positions are kept
  engine::Inference inference_;
  std::vector<std::int32_t> padded_;             // a whole context
  std::vector<std::vector<std::int32_t>> kept_;  // the tokens of each text that are computed
  std::vector<double> whole_logits_;             // [texts, vocabulary]
  std::span<const double> logits_;  // the same of the last call; those of kept texts: inference_'s
};

}  // namespace models
