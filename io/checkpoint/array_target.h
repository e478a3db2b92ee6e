// Loading a snapshot's arrays straight to where they belong.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "io/checkpoint/checkpoint.h"

namespace io {

// put() is called by a thread of the loader's, one array after the other, and wants() by the
// caller's at the same time.
class ArrayTarget {
 public:
  virtual ~ArrayTarget() = default;

  // Once, before any array is read: `description` has all but the arrays' data. What it throws ends
  // the load.
  virtual void begin(const Checkpoint& description) = 0;
  // Whether put() is to take this array. The same answer at each call.
  virtual bool wants(const NamedArray& array) const = 0;
  // In the order of the file. `data` matches the array's digest and is gone afterwards. The rest of
  // the file may still be damaged: what was put counts only once the load has returned. May throw;
  // that ends the load.
  virtual void put(const NamedArray& array, std::span<const std::byte> data) = 0;
};

// load_checkpoint(), but arrays that the target wants are put there and have no data in what is
// returned. Needs memory for two of them at a time. Throws as load_checkpoint(); the target's
// content is then of no use.
Checkpoint load_checkpoint(const std::string& path, ArrayTarget& target);

}  // namespace io
