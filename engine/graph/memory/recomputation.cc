// The search for segments: for each of several sizes, divide all steps into segments of at most
// that size, and recompute as few of them as fit, first those that save most bytes per operation.
//
// The size decides between two parts of the memory: few large segments have few values at their
// ends, which are kept, but all of a segment is in memory during its backward. For L equal layers
// the sum is smallest for sqrt(L) segments.
#include "engine/graph/memory/recomputation.h"

#include <algorithm>
#include <optional>

namespace engine {
namespace {

constexpr int kDivisions[] = {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96};

class Search {
 public:
  Search(const std::vector<StepCost>& steps, std::size_t limit,
         const std::function<SegmentTrial(const std::vector<PlanSegment>&)>& attempt)
      : steps_(steps), limit_(limit), attempt_(attempt), before_{0} {
    for (const StepCost& step : steps) before_.push_back(before_.back() + step.bytes);
  }

  std::vector<PlanSegment> run() {
    std::vector<PlanSegment> last;
    for (const int parts : kDivisions) {
      const std::vector<PlanSegment> divided =
          divide(before_.back() / static_cast<std::size_t>(parts));
      if (divided != last) consider(by_gain(divided));
      last = divided;
    }
    return best_;
  }

 private:
  int count() const { return static_cast<int>(steps_.size()); }
  const StepCost& step(int i) const { return steps_[static_cast<std::size_t>(i)]; }
  std::size_t bytes(const PlanSegment& s) const {
    return before_[static_cast<std::size_t>(s.end)] - before_[static_cast<std::size_t>(s.first)];
  }
  // Values that steps after it read are kept.
  std::size_t entering(int i) const { return i == count() ? 0 : step(i).entering; }

  std::vector<PlanSegment> divide(std::size_t budget) const {
    std::vector<PlanSegment> segments;
    for (int first = 0; first < count();) {
      int end = first + 1;
      while (end < count() && bytes({first, end + 1}) <= budget) ++end;
      if (end < count()) end = narrowest(first, end, budget / 2);
      segments.push_back({first, end});
      first = end;
    }
    return segments;
  }

  // Returns the end of a segment, at most `end`, where the fewest bytes enter the next one; the
  // segment has at least `least` bytes. The latest one of equal ones.
  int narrowest(int first, int end, std::size_t least) const {
    int found = end;
    for (int i = end - 1; i > first && bytes({first, i}) >= least; --i)
      if (entering(i) < entering(found)) found = i;
    return found;
  }

  // Without segments that save nothing.
  std::vector<PlanSegment> by_gain(const std::vector<PlanSegment>& segments) const {
    struct Gain {
      PlanSegment segment;
      double bytes_per_flop;
    };
    std::vector<Gain> gains;
    for (const PlanSegment& segment : segments) {
      if (bytes(segment) <= entering(segment.end)) continue;
      double flops = 1;
      for (int i = segment.first; i < segment.end; ++i) flops += step(i).flops;
      gains.push_back(
          {segment, static_cast<double>(bytes(segment) - entering(segment.end)) / flops});
    }
    std::ranges::stable_sort(gains, std::ranges::greater{}, &Gain::bytes_per_flop);
    std::vector<PlanSegment> sorted;
    sorted.reserve(gains.size());
    for (const Gain& gain : gains) sorted.push_back(gain.segment);
    return sorted;
  }

  void consider(const std::vector<PlanSegment>& sorted) {
    if (!accept(sorted)) return;
    std::size_t too_few = 0, enough = sorted.size();
    while (too_few + 1 < enough) {
      const std::size_t middle = (too_few + enough) / 2;
      (accept({sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(middle)}) ? enough
                                                                                      : too_few) =
          middle;
    }
  }

  // Returns true if they fit, and remembers the best.
  bool accept(std::vector<PlanSegment> segments) {
    std::ranges::sort(segments, {}, &PlanSegment::first);
    const SegmentTrial trial = attempt_(segments);
    const bool fits = trial.bytes <= limit_;
    const bool best_fits = best_trial_ && best_trial_->bytes <= limit_;
    const bool better = !best_trial_ || (fits && !best_fits) ||
                        (fits == best_fits && (fits ? trial.flops < best_trial_->flops
                                                    : trial.bytes < best_trial_->bytes));
    if (better) {
      best_ = std::move(segments);
      best_trial_ = trial;
    }
    return fits;
  }

  const std::vector<StepCost>& steps_;
  const std::size_t limit_;
  const std::function<SegmentTrial(const std::vector<PlanSegment>&)>& attempt_;
  std::vector<std::size_t> before_;  // for each step, the bytes of all before it; and of all
  std::vector<PlanSegment> best_;
  std::optional<SegmentTrial> best_trial_;
};

}  // namespace

std::vector<PlanSegment> choose_segments(
    const std::vector<StepCost>& steps, std::size_t limit,
    const std::function<SegmentTrial(const std::vector<PlanSegment>&)>& attempt) {
  return Search(steps, limit, attempt).run();
}

}  // namespace engine
