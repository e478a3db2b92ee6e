// The interface of optional parts of a run that store state in a checkpoint.
#pragma once

#include <functional>
#include <string>

#include "engine/train/saving/state_copy.h"
#include "io/checkpoint/checkpoint.h"

namespace engine {

class Stateful {
 public:
  virtual ~Stateful() = default;
  // Adds its counters and arrays. Called on rank 0, with the state in host memory.
  virtual void capture(StateCopy& copy) const = 0;
  // Continues from the state that capture() added; without it starts over, and if that may be
  // unexpected, calls notice() (which may be empty). Called on every rank, with the same checkpoint
  // and with the state in host memory; `source` names the file in messages. Throws io::DataError.
  virtual void restore(const io::Checkpoint& checkpoint, const std::string& source,
                       const std::function<void(const std::string&)>& notice) = 0;
  // Called after restore() if all ranks take the optimizer state of rank 0, with its number of
  // updates: numbers of other ranks no longer count.
  virtual void forget_ranks_updates() {}
};

}  // namespace engine
