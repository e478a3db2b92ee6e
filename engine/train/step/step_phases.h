// Measures the time of the phases of a training step on one rank.
#pragma once

#include <algorithm>
#include <chrono>

namespace engine {

struct StepPhases {  // in seconds
  double data = 0;   // waiting for the batch
  double forward = 0;
  double backward = 0;  // averaging that overlaps with it is not counted
  double communication =
      0;              // blocked in the averaging without other work, i.e. not hidden by backward
  double update = 0;  // the optimizer

  double total() const { return data + forward + backward + communication + update; }
  // The time without waiting for other ranks: the rank with the largest value is the slow one.
  double own() const { return data + forward + backward + update; }
  // Counts a wait for other ranks within forward as communication.
  void exclude_from_forward(double seconds) {
    const double waited = std::clamp(seconds, 0.0, forward);
    forward -= waited;
    communication += waited;
  }

  StepPhases& operator+=(const StepPhases& other) {
    data += other.data;
    forward += other.forward;
    backward += other.backward;
    communication += other.communication;
    update += other.update;
    return *this;
  }
  StepPhases over(double steps) const {
    return {data / steps, forward / steps, backward / steps, communication / steps, update / steps};
  }
};

// Reads the clock at the boundaries of phases.
class PhaseTimer {
 public:
  using Clock = std::chrono::steady_clock;
  // Adds the time since the last lap (or construction) to `phase`.
  void lap(double& phase) {
    const Clock::time_point now = Clock::now();
    phase += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }
  // Skips the time since the last lap: it belongs to no phase, or has already been counted.
  void skip() { last_ = Clock::now(); }

 private:
  Clock::time_point last_ = Clock::now();
};

}  // namespace engine
