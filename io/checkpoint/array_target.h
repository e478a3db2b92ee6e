// Loading a snapshot's arrays straight to where they belong.
#pragma once

#include <cstddef>
#include <span>

#include "io/checkpoint/byte_source.h"
#include "io/checkpoint/checkpoint.h"

namespace io {

// put() is called by two threads at the same time, for different arrays, and wants() by one of
// them.
class ArrayTarget {
 public:
  virtual ~ArrayTarget() = default;

  // Once, before any array is read: `description` has all but the arrays' data. What it throws ends
  // the load.
  virtual void begin(const Checkpoint& description) = 0;
  // Whether put() is to take this array. The same answer at each call.
  virtual bool wants(const NamedArray& array) const = 0;
  // Once for each. `data` matches the array's digest and is gone afterwards. The rest of
  // the file may still be damaged: what was put counts only once the load has returned. May throw;
  // that ends the load.
  virtual void put(const NamedArray& array, std::span<const std::byte> data) = 0;
};

// load_checkpoint(), but arrays that the target wants are put there and have no data in what is
// returned. Needs memory for two of them at a time. All is read by this thread, in the order of the
// file; where it is read depends on the content alone. Throws as load_checkpoint(), and what the
// file and the target throw; the target's content is then of no use.
Checkpoint load_checkpoint(const ByteSource& file, ArrayTarget& target);

}  // namespace io
