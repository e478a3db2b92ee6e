// Which tensors differ between snapshots, and how.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.h"

namespace io {

struct CompareOptions {
  // All zero: bit by bit (a NaN equals the same NaN, -0 differs from +0). Otherwise two numbers are equal when any of the
  // tolerances that are set says so; NaN equals NaN then.
  double relative = 0, absolute = 0;  // |a - b| <= absolute + relative * |b|
  std::int64_t ulp = 0;               // at most so many representable numbers apart (f32 and f64)
  std::vector<Section> sections{Section::kParameter, Section::kBuffer};
  std::vector<std::string> ignore{};  // globs (* and ?) of names left out
};

struct ArrayDifference {
  std::string name;
  Section section = Section::kParameter;
  std::string type, shape;        // of the first file that has it
  std::string reason;             // "values", "missing", "shape", "type"
  double max_absolute = 0;        // over all files against the first; "values" only
  std::int64_t max_ulp = -1;      // -1: no such measure
  std::int64_t first_index = -1;  // row-major
  std::vector<int> minority;      // files that hold something else than most do (the first file's side wins a tie)
};

struct Comparison {
  std::int64_t compared = 0;                 // distinct (section, name)
  std::vector<ArrayDifference> differences;  // in the order of the first file, then what only later ones have
};

// REQUIRES: at least two. Pointers are not null.
Comparison compare_arrays(const std::vector<const std::vector<NamedArray>*>& files, const CompareOptions& options);

bool is_running_statistic(const std::string& name);                  // "...running_mean", "...running_var"
bool glob_matches(std::string_view pattern, std::string_view text);  // * any run, ? any one character

}  // namespace io
