// The answers of a table's rows, labels or targets, and the draw of the rows for testing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/data/labels/labels.h"
#include "io/data/readers/csv/csv_columns.h"

namespace io {

// The answers of all rows of data, in their order. A kind of answer is a class of this kind.
class CsvAnswers {
 public:
  virtual ~CsvAnswers() = default;
  // Whether each row is for testing: of each class the same share, drawn, but never all its rows.
  // Numbers count as one class.
  virtual std::vector<bool> draw_test_rows(double share, std::uint64_t seed) const = 0;
  // The labels of all rows. `training`: positions of the rows that a scale of numbers is learnt
  // from, mean and deviation (of the population); or that of `like`, if it has one. Throws
  // DataError if all numbers are equal.
  virtual Labels labels(const std::vector<std::size_t>& training,
                        const TargetScale* like = nullptr) const = 0;
};

// The column `index` of the rows from `first` on. `title` stands for it in messages. Throws as
// read_labels().
std::unique_ptr<CsvAnswers> read_classes(const CsvTable& table, std::size_t index,
                                         std::size_t first, const CsvMissing& missing);
// As read_targets() reads them.
std::unique_ptr<CsvAnswers> read_numbers(const CsvTable& table, std::size_t index,
                                         std::size_t first, char decimal, const CsvMissing& missing,
                                         const std::string& title);
// Of rows that have been read: their classes by name, which may be a single one, or their numbers.
// `file` stands for the table in messages.
std::unique_ptr<CsvAnswers> class_answers(const std::vector<std::string>& names);
std::unique_ptr<CsvAnswers> number_answers(const std::string& file, const std::string& title,
                                           std::vector<double> numbers);

// "label species (3 classes)", "target price (mean 3, deviation 1.5)".
std::string answers_text(const std::string& title, const Labels& labels);

}  // namespace io
