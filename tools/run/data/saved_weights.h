// Selects the weights of a checkpoint that a command uses: the model's, or an average of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/graph/model_state.h"
#include "engine/train/saving/average_kind.h"
#include "io/checkpoint/array_source.h"
#include "io/checkpoint/checkpoint.h"
#include "tools/folder/run_reference.h"
#include "tools/run/data/foreign_layout.h"

namespace CLI {
class App;
}

namespace tools {

// As --weights has it: "model" for no average, "ema", "average".
const char* weights_name(engine::AverageKind weights);

// --weights; `weights` becomes what was chosen.
void add_weights_option(CLI::App& app, engine::AverageKind& weights);

// Returns the checkpoint of a run's folder to take them from: the best one for the model's weights,
// the newest for an average, because the best was not chosen by it.
inline CheckpointChoice choice_for(engine::AverageKind weights) {
  return weights == engine::AverageKind::kNone ? CheckpointChoice::kBest
                                               : CheckpointChoice::kNewest;
}

// Puts the average in the place of the model's parameters (and of what else it has), and leaves
// nothing but these and the model's buffers. kNone: changes nothing. Throws io::DataError where
// the checkpoint has no such average; `path` stands for the file.
void choose_weights(engine::AverageKind weights, const std::string& path,
                    io::Checkpoint& checkpoint);

// Throws io::DataError for matrices of GPT-2 in the layout of `transformers`: square ones among
// them have the right shape for this program and would be loaded transposed.
void refuse_transposed_gpt2(const std::vector<io::NamedArray>& arrays, const std::string& path);
// Throws io::DataError for matrices of queries that `transformers` stores apart from those of keys
// and values, unless the model has a parameter of this name or they are `optional`.
void refuse_separate_queries(const std::vector<io::NamedArray>& arrays, const std::string& path,
                             const engine::ModelState& state,
                             const std::function<bool(const std::string& name)>& optional = {});

// io::load_arrays(), or of a checkpoint what choose_weights() makes of it, or the parameters of a
// folder of Hugging Face. Arrays of another program are converted to the layers of `reader`.
std::vector<io::NamedArray> load_weights(engine::AverageKind weights, const std::string& path,
                                         std::vector<io::UnreadArray>* unread = nullptr,
                                         const ReadingModel& reader = {});

}  // namespace tools
