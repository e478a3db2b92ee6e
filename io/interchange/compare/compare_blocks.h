// Compares arrays of several files block by block, with several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "io/checkpoint/array_source.h"
#include "io/interchange/compare/compare_values.h"

namespace io {

constexpr std::size_t kNoColumn = ~std::size_t{0};
using Columns = std::vector<std::size_t>;  // for each file its array, or kNoColumn
using FileList = std::vector<std::size_t>;

// The result of comparing one array of several files, for each file.
struct BlockReport {
  std::vector<ValueReport> values;  // relative to the file that the others are compared with
  std::vector<char> not_finite;     // has a NaN or an infinity; not bool, because several threads
                                    // write it
};

void merge(const ValueReport& from, ValueReport& into);

// Compares arrays and owns the memory for the blocks. For one thread.
class BlockComparer {
 public:
  BlockComparer(const std::vector<ArraySource*>& files, const Tolerance& tolerance);

  // Compares bytes `from` to `to` of file `one`'s array with those of the `others`; adds to
  // `report`. REQUIRES: they have the same type and shape; `from` is the start of an element.
  void compare(const Columns& columns, std::size_t one, const FileList& others, std::uint64_t from,
               std::uint64_t to, BlockReport& report);

 private:
  const std::vector<ArraySource*>& files_;
  const Tolerance tolerance_;
  std::vector<std::byte> one_, other_;
};

// An array of file 0, and the other files that are compared with it.
struct ComparedRow {
  const Columns* columns;
  FileList others;
  BlockReport report;
};

// Fills the rows' reports. Uses all processors of the process if several threads may read each file
// and the files are large enough. Rethrows the exception of the first read that fails.
void compare_rows(const std::vector<ArraySource*>& files, const Tolerance& tolerance,
                  std::vector<ComparedRow>& rows);

// Calls finish() of every file, of several concurrently. Throws for the first damaged one.
void finish_all(const std::vector<ArraySource*>& files);

}  // namespace io
