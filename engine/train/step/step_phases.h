// Where the time of a training step goes, on one rank.
#pragma once

#include <chrono>

namespace engine {

struct StepPhases {  // seconds
  double data = 0;   // waiting for the batch
  double forward = 0;
  double backward = 0;  // averaging that goes on meanwhile costs nothing here
  double communication =
      0;  // blocked in the averaging when the rank has nothing else to do: not hidden by backward
  double update = 0;  // the optimizer

  double total() const { return data + forward + backward + communication + update; }
  // Without what others make this rank wait for: who has most of it is the slow one.
  double own() const { return data + forward + backward + update; }

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

// Reads the clock where one phase ends and the next begins.
class PhaseTimer {
 public:
  using Clock = std::chrono::steady_clock;
  // Adds the time since the last lap (or construction) to `phase`.
  void lap(double& phase) {
    const Clock::time_point now = Clock::now();
    phase += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }
  // The time since the last lap is no phase of its own, or has been told already.
  void skip() { last_ = Clock::now(); }

 private:
  Clock::time_point last_ = Clock::now();
};

}  // namespace engine
