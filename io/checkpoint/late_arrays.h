// Saves a checkpoint whose arrays get their final contents during the save.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "io/checkpoint/checkpoint.h"

namespace io {

// Called once for every array, in order and in the saving thread, before its data, whose size must
// not change, are read.
using CompleteArray = std::function<void(std::size_t index)>;

// The same with `complete`, whose exceptions are rethrown; then nothing is saved.
void save_checkpoint(const Checkpoint& checkpoint, const std::string& path,
                     const CompleteArray& complete);
std::string save_to_directory(const Checkpoint& checkpoint, const std::string& directory,
                              int keep_last, bool best, const CompleteArray& complete);

}  // namespace io
