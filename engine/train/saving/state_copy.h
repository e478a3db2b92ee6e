// A copy of a training state for a snapshot: taken quickly, as the state lies in memory, and
// brought into the layout of files afterwards, while the training may go on.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/core/parameter_buffer.h"
#include "io/checkpoint/checkpoint.h"

namespace engine {

// One thread at a time.
class StateCopy {
 public:
  // Begins a new copy with this in it and no arrays. Arrays of the same sizes as before use the
  // same memory, which is neither allocated nor touched for the first time then.
  void begin(io::Checkpoint description);

  // Adds slot `slot` of `buffer`, in host memory, as an array. The buffer may change afterwards.
  void add(const FlatBuffer& buffer, std::size_t slot, std::string name, io::Section section,
           Device device);
  // Brings array `index` into the layout of files, unless it is already.
  void complete(std::size_t index);

  // Arrays have their final data when they are complete. Whoever adds arrays here adds them
  // complete, after those of add().
  io::Checkpoint& checkpoint() { return checkpoint_; }
  // Completes all arrays and hands the snapshot over; then this is empty.
  io::Checkpoint take();

 private:
  io::Checkpoint checkpoint_;
  std::vector<TensorLayout> layouts_;          // of the arrays
  std::vector<std::vector<std::byte>> spare_;  // memory of the arrays of the copy before
  std::vector<std::byte> scratch_;             // as large as the largest array not in file order
};

}  // namespace engine
