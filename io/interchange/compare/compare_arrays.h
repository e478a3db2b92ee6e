// Which tensors differ between files of any format, and how. Files are read in blocks: memory does
// not grow with them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/checkpoint/array_source.h"
#include "io/interchange/compare/compare_values.h"

namespace io {

struct CompareOptions {
  Tolerance tolerance{};
  std::vector<Section> sections{Section::kParameter, Section::kBuffer};
  std::vector<std::string>
      ignore{};  // globs (* and ?) of names left out, after stripping and renaming
  std::vector<std::string>
      strip_prefix{};  // taken off the front of names, each at most once, in this order
  // old = new: a name that is `old`, or goes on after it with a ".", gets `new` in its place; the
  // first that fits.
  std::vector<std::pair<std::string, std::string>> rename{};
};

struct ArrayDifference {
  std::string name;
  Section section = Section::kParameter;
  std::string type, shape;  // of the first file that has it
  std::string reason;       // "values", "missing", "shape", "type"
  ValueReport values;       // over all files against the first; "values" only
  std::vector<int>
      minority;  // files that hold something else than most do (the first file's side wins a tie)
};

struct NotFinite {  // a tensor with a NaN or an infinity
  std::string name;
  std::vector<int> files;  // that hold it, ascending
};

struct Comparison {
  std::int64_t compared = 0;  // distinct (section, name)
  std::vector<ArrayDifference>
      differences;  // in model order, as far as a file knows it; then what only others have
  std::vector<NotFinite> not_finite;  // in the same order; of tensors whose values were compared
};

// Files that know no sections take them from those that do, else from the name. Calls finish() of
// every file, so that a damaged one is never called equal. Throws DataError: damage, or two arrays
// that options.rename or strip_prefix give one name; and Error. REQUIRES: at least two files, not
// null.
Comparison compare_arrays(const std::vector<ArraySource*>& files, const CompareOptions& options);

bool glob_matches(std::string_view pattern,
                  std::string_view text);  // * any run, ? any one character

}  // namespace io
