// Where the state that a training changes lives, and how the host sees it: in host memory itself,
// or on a device with a mirror in host memory.
#pragma once

#include "engine/core/error.h"

namespace engine {

// Keeps account of which of the two, home and mirror, is newer, so that nothing is copied twice and
// nobody has to foretell who will look. Where the home is host memory, there is nothing to copy.
// One thread at a time.
class StateHome {
 public:
  StateHome() = default;
  virtual ~StateHome() = default;
  StateHome(const StateHome&) = delete;
  StateHome& operator=(const StateHome&) = delete;

 protected:
  // Before the state is used where it lives: uploads what the host has written. May wait and throw
  // as upload(). REQUIRES: no HostView is open.
  void begin_use();
  // The state has changed, or is about to, where it lives: the next HostView fetches it.
  void changed() { newer_ = Newer::kHome; }

 private:
  friend class HostView;
  enum class Newer { kNeither, kHome, kMirror };

  virtual void download() {}  // home to mirror, and upload() back; both wait until it is done
  virtual void upload() {}

  Newer newer_ = Newer::kMirror;  // what the host has initialized goes up before the first use
  int views_ = 0;
};

enum class Access {
  kRead,
  kWrite,  // reads, too
};

// The state in host memory, up to date for as long as this lives: parameters, running statistics,
// counters, the optimizer's states and count, the loss scale. Views may be nested. What a kWrite
// view has written is uploaded before the state is next used where it lives: so its end never
// waits and never throws.
class [[nodiscard]] HostView {
 public:
  HostView(StateHome& home, Access access);  // throws what the device throws
  ~HostView();
  HostView(const HostView&) = delete;
  HostView& operator=(const HostView&) = delete;

 private:
  StateHome& home_;
  const Access access_;
};

}  // namespace engine
