// Loads a checkpoint's arrays directly into their destination.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "io/checkpoint/byte_source.h"
#include "io/checkpoint/checkpoint.h"

namespace io {

struct ArrayRows {  // a range of rows of an array's first dimension; an array without dimensions
                    // has one row
  std::int64_t first = 0, count = 0;
  std::span<const std::byte> data;
};

class ArrayTarget {
 public:
  virtual ~ArrayTarget() = default;

  // Called once, before any array is read: `description` has everything except the arrays' data. An
  // exception ends the load.
  virtual void begin(const Checkpoint& description) = 0;
  // Returns true if put() should receive this array. The answer must be the same at each call.
  virtual bool wants(const NamedArray& array) const = 0;
  // Called by several threads concurrently, once for every row; once for an array without elements.
  // `data` is invalid afterwards, and may be damaged, like the rest of the file: the stored data
  // are valid only after the load has returned. An exception ends the load.
  virtual void put(const NamedArray& array, const ArrayRows& rows) = 0;
};

// Like load_checkpoint(), but arrays that the target wants are passed to it and have no data in the
// result. Needs little memory for them: a few rows of one array per thread. A file without
// many_readers() is read by this thread, in order; the positions of its reads depend only on the
// content. Throws as load_checkpoint(), and the exceptions of the file and the target; the contents
// of the target are then invalid.
Checkpoint load_checkpoint(const ByteSource& file, ArrayTarget& target);

}  // namespace io
