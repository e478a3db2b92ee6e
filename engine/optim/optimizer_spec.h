// What an optimizer is, as data: its name, its options with defaults, its states with roles.
// Options, --help, checkpoints and averaging are made from it; adding one: docs/development.md.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/parameter_buffer.h"
#include "engine/optim/optimizer_shards.h"

namespace engine {

class Optimizer;

// What a state means to others than its optimizer: averaging takes the first moments
// (--average-state momentum), and an average is another set of weights (moving_average.h).
enum class StateRole { kFirstMoment, kSecondMoment, kAverage };

struct OptimizerOption {
  enum class Kind {
    kFlag,      // 0 or 1
    kFraction,  // from 0 to below 1
    kPositive,  // above 0, at most 1
    kCount,     // an integer from 1 to 100
  };
  const char* name;  // as on the command line: "adam-beta1". Of one optimizer alone
  Kind kind;
  double initial;
  const char* help;             // one line, no full stop
  const char* needs = nullptr;  // an option of this optimizer that must be above 0 where this is on
};

struct OptimizerState {
  enum class Of { kAll, kHiddenMatrices, kOthers };
  const char* name;  // in checkpoints: "exp_avg"
  StateRole role;
  const char* needs = nullptr;  // an option without which (0) there is no such state
  Of of = Of::kAll;             // which parameters have it
};

// Values of all options of an optimizer by name, and of "lr" and "weight-decay", which all have.
using OptimizerSettings = std::map<std::string, double, std::less<>>;

// Elements of the parameters' buffer that are updated with their own share of the learning rate.
struct UpdateRange {
  std::int64_t first = 0, count = 0;
  double rate = 1;
};

struct OptimizerParts {
  const OptimizerSettings& settings;
  const FlatBuffer& values;  // whose slots and device the states get
  // Names of the parameters that are matrices within the model: neither vectors nor embeddings, nor
  // of its first and last layers (hidden_matrices(), engine/graph/parameter_kinds.h).
  const std::vector<std::string>& hidden_matrices;
  // What is updated, and how fast; empty: all, at the same rate. REQUIRES: empty, unless the
  // optimizer is `by_ranges`.
  const std::vector<UpdateRange> ranges = {};
  // What this rank updates: any elements where the optimizer is `by_ranges`, else whole tensors
  // with their gaps. The states have memory for these alone, one part after the other. Null: all.
  const std::vector<Elements>* share = nullptr;
};

struct OptimizerSpec {
  const char* name;  // "adamw"
  double lr, weight_decay;
  std::vector<OptimizerOption> options;
  std::vector<OptimizerState> states;
  bool on_cuda;  // has step_on_device()
  // Updates each element by itself: can leave parameters out, update some faster than others, or
  // any share of them.
  bool by_ranges;
  // Throws ModelError where the optimizer has nothing to do in such a model.
  std::unique_ptr<Optimizer> (*make)(const OptimizerSpec& spec, const OptimizerParts& parts);
};

// All there are, in the order of --help; nullptr for an unknown name.
std::span<const OptimizerSpec* const> optimizers();
const OptimizerSpec* find_optimizer(std::string_view name);
OptimizerSettings default_settings(const OptimizerSpec& spec);

// The states that there are with these settings, in the descriptor's order.
std::vector<OptimizerState> states_of(const OptimizerSpec& spec, const OptimizerSettings& settings);

}  // namespace engine
