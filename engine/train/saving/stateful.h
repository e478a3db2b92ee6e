// What a snapshot holds of parts that only some runs have.
#pragma once

#include <functional>
#include <string>

#include "engine/train/saving/state_copy.h"
#include "io/checkpoint/checkpoint.h"

namespace engine {

class Stateful {
 public:
  virtual ~Stateful() = default;
  // Adds its counters and arrays. On rank 0, with the state in host memory.
  virtual void capture(StateCopy& copy) const = 0;
  // Goes on from what capture() added; without it from the beginning, and where that may surprise,
  // notice() (which may be empty) says so. On every rank, from the same checkpoint and with the
  // state in host memory; `source` names the file in messages. Throws io::DataError.
  virtual void restore(const io::Checkpoint& checkpoint, const std::string& source,
                       const std::function<void(const std::string&)>& notice) = 0;
};

}  // namespace engine
