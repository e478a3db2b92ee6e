// Builds GPT-2's architecture at any size, with the parameter names of minGPT: for the presets of
// the catalog and for programs that need another size or, with the same parameters, a shorter
// sample.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/graph/graph.h"

namespace models {

struct GptSize {
  std::int64_t layers = 4, heads = 4, width = 128;
};

// Returns the size of mingpt, gpt-nano, gpt-mini or gpt2; nothing for another name.
std::optional<GptSize> gpt_size(const std::string& name);

struct GptOptions {
  GptSize size;
  std::int64_t vocabulary = 0;
  std::int64_t context = 0;  // number of positions that the model has weights for
  std::int64_t positions =
      0;  // length of a sample, at most `context`; 0: context. The state is the same for any length
  double dropout =
      0;  // on the embeddings, the attention's probabilities and each branch before it is added
  double label_smoothing = 0;  // label smoothing of the training loss
};

// Reads token ids [positions] and labels [positions]; logits [positions, vocabulary]. The output
// layer is tied to "transformer.wte.weight". Throws engine::ModelError and engine::ShapeError for
// sizes that do not match. Sources: Radford et al., 2019; Karpathy's minGPT for the names.
engine::Graph build_gpt(const GptOptions& options);

}  // namespace models
