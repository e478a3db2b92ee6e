// Arrays of several files, compared block by block and by several threads.
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

// What a look at one array of several files has shown, by file.
struct BlockReport {
  std::vector<ValueReport> values;  // against the file that the others are compared with
  std::vector<char> not_finite;     // a NaN or an infinity; not of bool, for several threads
};

void merge(const ValueReport& from, ValueReport& into);

// With the memory for its blocks. One thread.
class BlockComparer {
 public:
  BlockComparer(const std::vector<ArraySource*>& files, const Tolerance& tolerance);

  // Bytes `from` to `to` of file `one`'s array with those of the `others`; adds to `report`.
  // REQUIRES: they have the same type and shape; `from` is at a number's begin.
  void compare(const Columns& columns, std::size_t one, const FileList& others, std::uint64_t from,
               std::uint64_t to, BlockReport& report);

 private:
  const std::vector<ArraySource*>& files_;
  const Tolerance tolerance_;
  std::vector<std::byte> one_, other_;
};

// Arrays of file 0, and which of the other files are compared with it.
struct ComparedRow {
  const Columns* columns;
  FileList others;
  BlockReport report;
};

// Fills the rows' reports. Uses the processors that the process has, where all files can be read by
// several threads and are large enough. Throws what the first place that cannot be read throws.
void compare_rows(const std::vector<ArraySource*>& files, const Tolerance& tolerance,
                  std::vector<ComparedRow>& rows);

// finish() of every file, of several at the same time. Throws for the first that is damaged.
void finish_all(const std::vector<ArraySource*>& files);

}  // namespace io
