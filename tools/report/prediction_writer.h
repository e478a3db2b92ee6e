// Predictions as lines: CSV, JSON or a table.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tools {

struct PredictionFormat {
  std::string name = "csv";  // csv, json or table
  std::int64_t top = 1;      // classes told, the most likely first
  bool all = false;          // the probability of every class, too
};

// The softmax of these logits.
std::vector<double> probabilities_of(std::span<const double> logits);

class PredictionWriter {
 public:
  // Prints the head line of CSV and tables, for JSON {"schema":1,"event":"classes",...}.
  PredictionWriter(const PredictionFormat& format, std::vector<std::string> classes);

  // One line. The first of equally likely classes comes first, as in an evaluation. Throws
  // io::DataError for logits that are not finite.
  void print(const std::string& input, std::int64_t sample, std::span<const double> logits);

 private:
  void print_csv(const std::string& input, std::int64_t sample) const;
  void print_json(const std::string& input, std::int64_t sample) const;
  void print_row(const std::string& input, std::int64_t sample) const;

  const PredictionFormat format_;
  const std::vector<std::string> classes_;
  std::vector<std::size_t> order_;  // of the row in hand: the most likely, and how likely all are
  std::vector<double> probabilities_;
};

}  // namespace tools
