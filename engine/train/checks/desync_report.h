// The result of a comparison of the replicas, and the possible reactions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace engine {

enum class OnDesync {
  kAbort,   // the run ends on all ranks (DesyncError)
  kWarn,    // the run continues
  kRepair,  // ranks in the minority take the majority's tensors, and the run continues
};
std::string_view to_string(OnDesync action);

struct DesyncTensor {
  std::string name;  // "conv1.weight", "momentum/conv1.weight"
  std::vector<int>
      ranks;  // ranks that differ from the largest group of equal ranks; with a tie, from rank 0
  bool tie = false;  // no group of equal ranks is larger than all others
  int source = 0;    // a rank that has the reference value
};

struct DesyncReport {
  OnDesync action = OnDesync::kAbort;
  std::int64_t step = 0;       // step of this comparison
  std::int64_t last_good = 0;  // the last step after which all ranks are known to have been equal
  std::int64_t first_bad = 0;  // the first step after which they are known to differ; last_good + 1
                               // if every step was kept
  std::int64_t compared = 0;   // number of tensors
  std::vector<DesyncTensor> tensors{};  // the differing ones, in model order, optimizer states last
  std::vector<int> ranks{};             // all ranks with a differing tensor, ascending
  bool tie = false;                     // true if any tensor has a tie
  bool repaired = false;
};

// Formats one line: tensors (the first few), ranks, first bad step, and the reaction.
std::string to_string(const DesyncReport& report, int world_size);

}  // namespace engine
