// Compares the tensors of files of any format. Files are read in blocks: memory does not grow with
// their size.
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
  // Globs (* and ?) of names to ignore, after stripping and renaming.
  std::vector<std::string> ignore{};
  // Prefixes removed from names, each at most once, in this order.
  std::vector<std::string> strip_prefix{};
  // Pairs of old and new: a name that is `old`, or continues after it with a ".", gets `new` in its
  // place; the first match is used.
  std::vector<std::pair<std::string, std::string>> rename{};
};

struct ArrayDifference {
  std::string name;
  Section section = Section::kParameter;
  std::string type, shape;  // those of the first file that has it
  std::string reason;       // "values", "missing", "shape", "type"
  ValueReport values;       // over all files relative to the first; only for "values"
  // Files that differ from the majority (with a tie, from the first file's group).
  std::vector<int> minority;
};

struct NotFinite {  // a tensor with a NaN or an infinity
  std::string name;
  std::vector<int> files;  // the files in which it is, ascending
};

struct Comparison {
  std::int64_t compared = 0;  // number of distinct (section, name)
  std::vector<ArrayDifference>
      differences;  // in model order if a file has it; then those that only other files have
  // In the same order; for tensors whose values were compared, but not for a model's constants,
  // "NAME.value".
  std::vector<NotFinite> not_finite;
};

// Files without sections take them from those that have them, otherwise from the name. Calls
// finish() of every file, so that a damaged one is never reported as equal. Throws DataError:
// damage, or two arrays that get the same name by options.rename or strip_prefix; and Error.
// REQUIRES: at least two files, not null.
Comparison compare_arrays(const std::vector<ArraySource*>& files, const CompareOptions& options);

bool glob_matches(std::string_view pattern,
                  std::string_view text);  // * matches any text, ? any single character

}  // namespace io
