// Describes an optimizer as data: its name, its options with defaults, its states with roles.
// Options, --help, checkpoints and averaging are derived from it. docs/development.md explains how
// to add one.
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

// The meaning of a state outside of its optimizer: averaging includes the first moments
// (--average-state momentum), and an average is another set of weights (moving_average.h).
enum class StateRole { kFirstMoment, kSecondMoment, kAverage };

struct OptimizerOption {
  enum class Kind {
    kFlag,      // 0 or 1
    kFraction,  // from 0 to below 1
    kPositive,  // above 0, at most 1
    kCount,     // an integer from 1 to max_count
  };
  const char* name;  // as on the command line, e.g. "adam-beta1"; used by one optimizer only
  Kind kind;
  double initial;
  const char* help;             // one line without a period
  const char* needs = nullptr;  // an option of this optimizer that must be above 0 if this one is
                                // set
  int max_count = 100;
};

struct OptimizerState {
  enum class Of { kAll, kHiddenMatrices, kOthers };
  const char* name;  // name in checkpoints: "exp_avg"
  StateRole role;
  const char* needs = nullptr;  // an option; if it is 0, this state does not exist
  Of of = Of::kAll;             // the parameters that have it
};

// The values of all options of an optimizer by name, including "lr" and "weight-decay", which every
// optimizer has.
using OptimizerSettings = std::map<std::string, double, std::less<>>;

// A range of the parameters' buffer that is updated with its own factors of the learning rate and
// of the weight decay.
struct UpdateRange {
  std::int64_t first = 0, count = 0;
  double rate = 1, decay = 1;
};

struct OptimizerParts {
  const OptimizerSettings& settings;
  const FlatBuffer& values;  // the states get its slots and device
  // Names of the parameters that are matrices within the model: neither vectors nor embeddings, nor
  // parameters of its first and last layers (hidden_matrices(), engine/graph/parameter_kinds.h).
  const std::vector<std::string>& hidden_matrices;
  // The ranges to update, and their factors; empty: everything with the factor 1. REQUIRES: empty,
  // unless the optimizer is `by_ranges`.
  const std::vector<UpdateRange> ranges = {};
  // The elements that this rank updates: any elements if the optimizer is `by_ranges`, otherwise
  // whole tensors with their gaps. The states have memory only for these, one part after the other.
  // All elements if null.
  const std::vector<Elements>* share = nullptr;
};

struct OptimizerSpec {
  const char* name;  // "adamw"
  double lr, weight_decay;
  std::vector<OptimizerOption> options;
  std::vector<OptimizerState> states;
  bool on_cuda;  // implements step_on_device()
  // Updates each element independently: it can omit parameters, update some with another rate, or
  // update any shard of them.
  bool by_ranges;
  // Throws ModelError if such a model has no parameters for the optimizer.
  std::unique_ptr<Optimizer> (*make)(const OptimizerSpec& spec, const OptimizerParts& parts);
  // Returns the bytes beside the states, of an optimizer that updates these hidden matrices; null:
  // none.
  std::size_t (*workspace_bytes)(std::span<const TensorLayout> hidden_matrices, DType dtype,
                                 Device::Kind device) = nullptr;
};

// All optimizers, in the order of --help; find_optimizer() returns nullptr for an unknown name.
std::span<const OptimizerSpec* const> optimizers();
const OptimizerSpec* find_optimizer(std::string_view name);
OptimizerSettings default_settings(const OptimizerSpec& spec);

// Returns the states that exist with these settings, in the descriptor's order.
std::vector<OptimizerState> states_of(const OptimizerSpec& spec, const OptimizerSettings& settings);

}  // namespace engine
