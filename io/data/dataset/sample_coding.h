// The coding of a trained model's samples, as stored in its checkpoint: classes, numbers,
// categories and characters of other data are matched with it by their names.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/data/dataset/dataset.h"

namespace io {

struct CsvCoding;  // io/data/readers/csv/csv_coding.h

struct SampleCoding {
  Dataset like;  // without samples: shape, classes, target, channel statistics, vocabulary
  std::shared_ptr<const CsvCoding> table = {};  // for kFeatures
  std::string source = {};                      // the origin of the coding, for messages:
                                                // "run/step-8.ckpt"
  std::string digest = {};  // digest of the training samples that it was learned from; "": unknown
  // Only samples are coded this way; classes and targets are learned from the data, for a new head.
  bool inputs_only = false;
};

// Counts values in data that have no counterpart in a coding, and keeps a few of their names.
class UnknownNames {
 public:
  void add(std::string_view name, const std::function<std::string()>& place);
  std::int64_t count() const { return count_; }
  // Returns "300 of 600 rows have a class that the model lacks: 'a', 'b' (first: row 2)", with
  // `subject` "rows have a class", or "" if there is none.
  std::string text(const std::string& subject, std::int64_t total) const;

 private:
  static constexpr std::size_t kMaxNames = 5;
  std::vector<std::string> names_;
  bool more_names_ = false;
  std::int64_t count_ = 0;
  std::string first_;
};

// Replaces the labels by those of the coding's classes with the same names, or with the same
// numbers if one of the two has no names. Classes that the coding does not have become
// `unknown_classes`, and a line about them is added to `lines`. `place_of` returns the position of
// sample i.
void match_classes(const SampleCoding& coding, Dataset& set,
                   const std::function<std::string(std::int64_t)>& place_of,
                   std::vector<std::string>& lines);

// Throws DataError with both kinds for samples of another kind, or images with other channels.
void check_kind(const SampleCoding& coding, const Dataset& set);

}  // namespace io
