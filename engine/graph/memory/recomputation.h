// Chooses which activations a plan does not keep, so that backward computes them again.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace engine {

// Steps [first, end) whose results are not kept for backward, except those that steps outside
// read. Backward runs them forward again.
struct PlanSegment {
  int first = 0, end = 0;
  bool operator==(const PlanSegment&) const = default;
};

// The memory and the work that a step adds to a plan.
struct StepCost {
  std::size_t bytes = 0;     // of its output and saved values, if backward reads them
  std::size_t entering = 0;  // of values that earlier steps compute and this or later ones read
  double flops = 0;          // of its forward
};

// The memory of a plan with some segments, and the operations that it adds.
struct SegmentTrial {
  std::size_t bytes = 0;
  double flops = 0;
};

// Returns segments for which `attempt` gives at most `limit` bytes, with the fewest operations that
// were found; if there are none, those with the fewest bytes. Deterministic. Method: Chen, Xu,
// Zhang and Guestrin, "Training deep nets with sublinear memory cost", 2016 (arXiv 1604.06174):
// segments of about equal memory, for several numbers of them, that begin where few values enter.
std::vector<PlanSegment> choose_segments(
    const std::vector<StepCost>& steps, std::size_t limit,
    const std::function<SegmentTrial(const std::vector<PlanSegment>&)>& attempt);

}  // namespace engine
