// Writes predictions as lines of CSV, JSON or a table, for classes, a number, or several labels.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/data/labels/multi_labels.h"
#include "io/data/labels/target_values.h"

namespace tools {

struct PredictionFormat {
  std::string name = "csv";  // csv, json or table
  std::int64_t top = 1;      // number of printed classes, the most likely first
  bool all = false;          // also prints the probability of every class
};

// Returns the softmax of these logits.
std::vector<double> probabilities_of(std::span<const double> logits);

class PredictionWriter {
 public:
  // Prints the header line of CSV and tables; for JSON {"schema":1,"event":"classes",...}.
  PredictionWriter(const PredictionFormat& format, std::vector<std::string> classes);

  // For predictions of one number each, printed in the target's unit:
  // {"schema":1,"event":"target","target":"price"}.
  PredictionWriter(const PredictionFormat& format, const io::TargetScale& target);

  // For a probability of each label:
  // {"schema":1,"event":"labels","labels":["a","b"]}.
  PredictionWriter(const PredictionFormat& format, const io::MultiLabels& labels);

  // Prints one line. The first of equally likely classes comes first, as in an evaluation. Throws
  // io::DataError for logits that are not finite.
  void print(const std::string& input, std::int64_t sample, std::span<const double> logits);

 private:
  void print_csv(const std::string& input, std::int64_t sample) const;
  void print_json(const std::string& input, std::int64_t sample) const;
  void print_row(const std::string& input, std::int64_t sample) const;

  void print_number(const std::string& input, std::int64_t sample, double prediction) const;
  void print_labels(const std::string& input, std::int64_t sample) const;

  const PredictionFormat format_;
  const std::vector<std::string> classes_;
  const std::optional<io::TargetScale> target_ = {};
  const bool several_ = false;  // labels: classes_ has their names
  // For the current row: the most likely classes, and all probabilities.
  std::vector<std::size_t> order_;
  std::vector<double> probabilities_;
};

}  // namespace tools
