// The answers of a table's rows, i.e. labels or targets, and the draw of the test rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/data/labels/labels.h"
#include "io/data/readers/csv/csv_columns.h"

namespace io {

// The answers of all data rows, in order. Each kind of answer is a subclass.
class CsvAnswers {
 public:
  virtual ~CsvAnswers() = default;
  // Returns true for each test row: the same fraction of each class is drawn, but never all its
  // rows. Numbers count as one class.
  virtual std::vector<bool> draw_test_rows(double share, std::uint64_t seed) const = 0;
  // Returns the labels of all rows. `training` has the positions of the rows from which the scale
  // of numbers is learned, mean and deviation (of the population); if `like` is given, its scale is
  // used. Throws DataError if all numbers are equal.
  virtual Labels labels(const std::vector<std::size_t>& training,
                        const TargetScale* like = nullptr) const = 0;
};

// Reads the column `index` of the rows from `first` on. `title` names it in messages. Throws as
// read_labels().
std::unique_ptr<CsvAnswers> read_classes(const CsvTable& table, std::size_t index,
                                         std::size_t first, const CsvMissing& missing);
// Reads numbers like read_targets().
std::unique_ptr<CsvAnswers> read_numbers(const CsvTable& table, std::size_t index,
                                         std::size_t first, char decimal, const CsvMissing& missing,
                                         const std::string& title);
// Reads the columns `indices`, with these titles, like read_flag().
std::unique_ptr<CsvAnswers> read_flags(const CsvTable& table,
                                       const std::vector<std::size_t>& indices, std::size_t first,
                                       const CsvMissing& missing,
                                       const std::vector<std::string>& titles);
// For rows that have been read: their classes by name, which may be a single one, their numbers, or
// their labels of 0 or 1, row by row.
// `file` names the table in messages.
std::unique_ptr<CsvAnswers> class_answers(const std::vector<std::string>& names);
std::unique_ptr<CsvAnswers> number_answers(const std::string& file, const std::string& title,
                                           std::vector<double> numbers);
std::unique_ptr<CsvAnswers> flag_answers(const std::vector<std::string>& titles,
                                         std::vector<float> flags);

// "label species (3 classes)", "target price (mean 3, deviation 1.5)".
std::string answers_text(const std::string& title, const Labels& labels);

}  // namespace io
