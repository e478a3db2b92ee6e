// The coding of a trained model's samples, as its snapshot states it: classes, numbers, categories
// and characters of other data are matched with it by their names.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/data/dataset/splits.h"

namespace io {

struct SampleCoding {
  Dataset like;  // without samples: shape, classes, target, channel statistics, vocabulary
  std::shared_ptr<const CsvCoding> table = {};  // of kFeatures
  std::string source = {};                      // what states it, for messages: "run/step-8.ckpt"
  std::string digest = {};  // of the training samples that it was learned from; "": unknown
  // Only samples are coded so; classes and targets are learned from the data, for a new head.
  bool inputs_only = false;
};

// Counts what is found in data and has no counterpart in a coding. A few names are kept.
class UnknownNames {
 public:
  void add(std::string_view name, const std::function<std::string()>& place);
  std::int64_t count() const { return count_; }
  // "300 of 600 rows have a class that the model lacks: 'a', 'b' (first: row 2)". `subject`: "rows
  // have a class". "" if there is none.
  std::string text(const std::string& subject, std::int64_t total) const;

 private:
  static constexpr std::size_t kMaxNames = 5;
  std::vector<std::string> names_;
  bool more_names_ = false;
  std::int64_t count_ = 0;
  std::string first_;
};

// The labels become those of the coding's classes of the same names, or of the same numbers if one
// of the two has no names; classes that it lacks become `unknown_classes`, and a line about them is
// added to `lines`. `place_of` gives where sample i lies.
void match_classes(const SampleCoding& coding, Dataset& set,
                   const std::function<std::string(std::int64_t)>& place_of,
                   std::vector<std::string>& lines);

// Throws DataError, naming both: samples of another kind, or images of other channels.
void check_kind(const SampleCoding& coding, const Dataset& set);

}  // namespace io
