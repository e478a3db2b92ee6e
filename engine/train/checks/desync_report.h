// What a comparison of the replicas found, and what to do about it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace engine {

enum class OnDesync {
  kAbort,   // the run ends on all ranks (DesyncError)
  kWarn,    // it goes on
  kRepair,  // ranks in the minority take the majority's tensors, and it goes on
};
std::string_view to_string(OnDesync action);

struct DesyncTensor {
  std::string name;  // "conv1.weight", "momentum/conv1.weight"
  std::vector<int>
      ranks;  // those that differ from the largest group of equal ranks; with a tie, from rank 0
  bool tie = false;  // no group of equal ranks is the largest
  int source = 0;    // a rank that has what the others are compared with
};

struct DesyncReport {
  OnDesync action = OnDesync::kAbort;
  std::int64_t step = 0;       // of this comparison
  std::int64_t last_good = 0;  // the last step after which all ranks are known to have been equal
  std::int64_t first_bad = 0;  // the first step after which they are known to differ; last_good + 1
                               // where every step was kept
  std::int64_t compared = 0;   // tensors
  std::vector<DesyncTensor> tensors{};  // that differ, in model order, optimizer states last
  std::vector<int> ranks{};             // all that differ in a tensor, ascending
  bool tie = false;                     // of any tensor
  bool repaired = false;
};

// One line: tensors (the first few), ranks, first bad step, what was done.
std::string to_string(const DesyncReport& report, int world_size);

}  // namespace engine
