// Bounds the time that copies of the state take.
#pragma once

namespace engine {

// The first copy is not counted: it allocates the memory that later ones use again, so that its
// time is not theirs.
class CopyBudget {
 public:
  // Times are in seconds of one clock.
  bool allows(double now) const { return now >= next_; }
  // Counts a copy; copies take at most this fraction of the time.
  void add(double start, double end, double max_fraction) {
    next_ = is_first_ ? end : end + (end - start) / max_fraction;
    is_first_ = false;
  }

 private:
  bool is_first_ = true;
  double next_ = 0;
};

}  // namespace engine
