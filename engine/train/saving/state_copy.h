// A copy of a training state for a checkpoint: it is taken quickly in memory layout, and converted
// to file layout later, while training may continue.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/core/parameter_buffer.h"
#include "io/checkpoint/checkpoint.h"

namespace engine {

// For one thread at a time.
class StateCopy {
 public:
  // Starts a new copy with this description and no arrays. Arrays of the same sizes as before reuse
  // their memory, which saves allocations and page faults.
  void begin(io::Checkpoint description);

  // Adds slot `slot` of `buffer`, in host memory, as an array. The buffer may change afterwards.
  void add(const FlatBuffer& buffer, std::size_t slot, std::string name, io::Section section,
           Device device);
  // Converts array `index` to file layout, unless it already has it.
  void complete(std::size_t index);

  // Arrays have their final data after complete(). Arrays that callers add here must be complete,
  // and must follow those of add().
  io::Checkpoint& checkpoint() { return checkpoint_; }
  // Completes all arrays and returns the checkpoint; then this is empty.
  io::Checkpoint take();

 private:
  io::Checkpoint checkpoint_;
  std::vector<TensorLayout> layouts_;          // one per array
  std::vector<std::vector<std::byte>> spare_;  // memory of the previous copy's arrays
  std::vector<std::byte> scratch_;             // as large as the largest array that is not in file
                                               // order
};

}  // namespace engine
