// Loading a snapshot's arrays straight to where they belong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "io/checkpoint/byte_source.h"
#include "io/checkpoint/checkpoint.h"

namespace io {

struct ArrayRows {  // some rows of an array's first dimension; an array without dimensions is one
  std::int64_t first = 0, count = 0;
  std::span<const std::byte> data;
};

class ArrayTarget {
 public:
  virtual ~ArrayTarget() = default;

  // Once, before any array is read: `description` has all but the arrays' data. What it throws ends
  // the load.
  virtual void begin(const Checkpoint& description) = 0;
  // Whether put() is to take this array. The same answer at each call.
  virtual bool wants(const NamedArray& array) const = 0;
  // By several threads at the same time, every row once; once for an array without elements. `data`
  // is gone afterwards, and may be damaged, as the rest of the file: what was put counts only once
  // the load has returned. May throw; that ends the load.
  virtual void put(const NamedArray& array, const ArrayRows& rows) = 0;
};

// load_checkpoint(), but arrays that the target wants are put there and have no data in what is
// returned. Needs little memory for them: a few rows of one for each thread. A file that does not
// have many_readers() is read by this thread, in its order; where it is read depends on the content
// alone. Throws as load_checkpoint(), and what the file and the target throw; the target's content
// is then of no use.
Checkpoint load_checkpoint(const ByteSource& file, ArrayTarget& target);

}  // namespace io
