// Defines where the state of a training run is stored and how the host accesses it: in host memory,
// or on a device with a mirror in host memory.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "engine/core/error.h"

namespace engine {

class FlatBuffer;
class StateMath;  // state_math.h

// Memory with which a policy calculates where the state is.
struct HomeBuffer {
  FlatBuffer* buffer;      // in host memory; on a device it stands for its mirror
  bool is_state = true;    // part of what a HostView has; else only the policy uses it
  bool exchanged = false;  // passes through host memory (StateMath::fetch(), store())
  bool is_error = false;   // what a step's sum of gradients did not send: the step changes it
};
struct HomeMemory {
  std::vector<HomeBuffer> buffers = {};
  // If other threads use the memory: waits until none does, and completes what they have received,
  // so that the memory can be copied. Does not throw the errors of these threads.
  std::function<void(StateMath&)> wait_idle = {};
  // Ends the exchanges of such threads: this rank has failed. Sums on devices are aborted before.
  std::function<void()> cancel = {};
};

// Tracks which of the two, home and mirror, is newer, so that nothing is copied twice and no caller
// has to announce its accesses. If the home is host memory, nothing is copied. One thread at a
// time.
class StateHome {
 public:
  StateHome() = default;
  virtual ~StateHome() = default;
  StateHome(const StateHome&) = delete;
  StateHome& operator=(const StateHome&) = delete;

  // Adds memory of a policy, before its first use; the memory must outlive the home.
  virtual void add(const HomeMemory& /*memory*/) {}
  // Copies the gradients of the last step to the model in host memory, where a HostView does not
  // keep them up to date: those that the update read, before clipping and without the loss scale.
  // May wait, and throws like download(). Does nothing if the home is host memory.
  virtual void fetch_gradients() {}

 protected:
  // Called before the state is used at home: uploads changes of the host. May wait, and throws like
  // upload(). REQUIRES: no HostView is open.
  void begin_use();
  // The state at home has changed or is about to: the next HostView downloads it.
  void changed() { newer_ = Newer::kHome; }

 private:
  friend class HostView;
  friend class StateUse;
  enum class Newer { kNeither, kHome, kMirror };

  virtual void download() {}  // copies home to mirror, upload() mirror to home; both wait for
                              // completion
  virtual void upload() {}
  // Calculates where the state is. Null: averagings take place in host memory.
  virtual StateMath* math() { return nullptr; }

  Newer newer_ = Newer::kMirror;  // the host's initial values are uploaded before the first use
  int views_ = 0;
};

enum class Access {
  kRead,
  kWrite,  // reads as well
};

// Keeps the state in host memory up to date during its lifetime: parameters, running statistics,
// counters, the optimizer's states and count, the loss scale. Views may be nested. Changes of a
// kWrite view are uploaded before the state is next used at home, so the destructor never waits and
// never throws.
class [[nodiscard]] HostView {
 public:
  HostView(StateHome& home, Access access);  // throws the device's errors
  ~HostView();
  HostView(const HostView&) = delete;
  HostView& operator=(const HostView&) = delete;

 private:
  StateHome& home_;
  const Access access_;
};

// Use of the state by a policy, which reads and changes it: at home if the home can calculate, else
// under a HostView. Not within a HostView.
class [[nodiscard]] StateUse {
 public:
  // `at_home`: the policy's calculations are those of a StateMath.
  StateUse(StateHome& home, bool at_home);
  // Returns null if the policy calculates in host memory.
  StateMath* math() const { return math_; }

 private:
  std::optional<HostView> view_;
  StateMath* math_ = nullptr;
};

}  // namespace engine
