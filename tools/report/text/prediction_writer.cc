// Implements softmax, the most likely classes, and three output formats.
#include "tools/report/text/prediction_writer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <utility>

#include "io/base/files/io_error.h"
#include "io/base/formats/json_writer.h"
#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"
#include "tools/report/output/standard_output.h"

namespace tools {
namespace {

std::string number(double value) { return base::shortest_text(value); }

void put(const std::string& line) { print_output(line + "\n"); }

}  // namespace

std::vector<double> probabilities_of(std::span<const double> logits) {
  std::vector<double> values(logits.begin(), logits.end());
  const double largest = *std::max_element(values.begin(), values.end());
  double sum = 0;
  for (double& value : values) sum += value = std::exp(value - largest);
  for (double& value : values) value /= sum;
  return values;
}

PredictionWriter::PredictionWriter(const PredictionFormat& format, std::vector<std::string> classes)
    : format_(format), classes_(std::move(classes)) {
  if (format_.name == "json") {
    base::JsonWriter object;
    object.begin_object().member("schema", 1).member("event", "classes");
    put(object.member("classes", classes_).end_object().text());
    return;
  }
  if (format_.name == "table") {
    std::printf("%-32s  %8s  prediction\n", "input", "sample");
    return;
  }
  std::string line = "input,sample,prediction,probability";
  for (std::int64_t k = 2; k <= format_.top; ++k)
    line += ",prediction_" + std::to_string(k) + ",probability_" + std::to_string(k);
  if (format_.all)
    for (const std::string& name : classes_) line += "," + base::csv_field("p(" + name + ")");
  put(line);
}

PredictionWriter::PredictionWriter(const PredictionFormat& format, const io::TargetScale& target)
    : format_(format), target_(target) {
  if (format_.name == "json") {
    base::JsonWriter object;
    object.begin_object().member("schema", 1).member("event", "target");
    put(object.member("target", base::escape_text(target.name)).end_object().text());
  } else if (format_.name == "table") {
    std::printf("%-32s  %8s  %s\n", "input", "sample", base::escape_text(target.name).c_str());
  } else {
    put("input,sample,prediction");
  }
}

PredictionWriter::PredictionWriter(const PredictionFormat& format, const io::MultiLabels& labels)
    : format_(format), classes_(labels.names), several_(true) {
  if (format_.name == "json") {
    base::JsonWriter object;
    object.begin_object().member("schema", 1).member("event", "labels");
    put(object.member("labels", classes_).end_object().text());
  } else if (format_.name == "table") {
    std::printf("%-32s  %8s  labels\n", "input", "sample");
  } else {
    std::string line = "input,sample";
    for (const std::string& name : classes_) line += "," + base::csv_field("p(" + name + ")");
    put(line);
  }
}

void PredictionWriter::print(const std::string& input, std::int64_t sample,
                             std::span<const double> logits) {
  if (!std::ranges::all_of(logits, [](double logit) { return std::isfinite(logit); }))
    throw io::DataError(input + ": sample " + std::to_string(sample) +
                        ": the model's output is not finite (NaN or infinity)");
  if (target_) return print_number(input, sample, target_->in_unit(logits[0]));
  if (several_) {
    probabilities_.clear();
    for (const double logit : logits) probabilities_.push_back(1 / (1 + std::exp(-logit)));
    return print_labels(input, sample);
  }
  probabilities_ = probabilities_of(logits);
  order_.resize(logits.size());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  const auto before = [&](std::size_t a, std::size_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  std::partial_sort(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(format_.top),
                    order_.end(), before);
  order_.resize(static_cast<std::size_t>(format_.top));
  if (format_.name == "json")
    print_json(input, sample);
  else if (format_.name == "table")
    print_row(input, sample);
  else
    print_csv(input, sample);
}

void PredictionWriter::print_number(const std::string& input, std::int64_t sample,
                                    double prediction) const {
  if (format_.name == "json") {
    base::JsonWriter object;
    object.begin_object().member("event", "prediction").member("input", input);
    put(object.member("sample", sample).member("prediction", prediction).end_object().text());
  } else if (format_.name == "table") {
    std::printf("%-32s  %8lld  %s\n", base::escape_text(input).c_str(),
                static_cast<long long>(sample), number(prediction).c_str());
  } else {
    put(base::csv_field(input) + "," + std::to_string(sample) + "," + number(prediction));
  }
}

void PredictionWriter::print_labels(const std::string& input, std::int64_t sample) const {
  if (format_.name == "json") {
    base::JsonWriter object;
    object.begin_object().member("event", "prediction").member("input", input);
    object.member("sample", sample).member("probabilities", probabilities_);
    put(object.end_object().text());
  } else if (format_.name == "table") {
    std::string line;
    for (std::size_t k = 0; k < classes_.size(); ++k)
      line += (line.empty() ? "" : ", ") + base::escape_text(classes_[k]) +
              base::number_text(" %.2f %%", 100 * probabilities_[k]);
    std::printf("%-32s  %8lld  %s\n", base::escape_text(input).c_str(),
                static_cast<long long>(sample), line.c_str());
  } else {
    std::string line = base::csv_field(input) + "," + std::to_string(sample);
    for (const double probability : probabilities_) line += "," + number(probability);
    put(line);
  }
}

void PredictionWriter::print_csv(const std::string& input, std::int64_t sample) const {
  std::string line = base::csv_field(input) + "," + std::to_string(sample);
  for (const std::size_t c : order_)
    line += "," + base::csv_field(classes_.at(c)) + "," + number(probabilities_[c]);
  if (format_.all)
    for (const double probability : probabilities_) line += "," + number(probability);
  put(line);
}

void PredictionWriter::print_json(const std::string& input, std::int64_t sample) const {
  base::JsonWriter object;
  object.begin_object().member("event", "prediction").member("input", input);
  object.member("sample", sample).member("prediction", classes_.at(order_[0]));
  object.member("class", order_[0]).member("probability", probabilities_[order_[0]]);
  if (format_.top > 1) {
    object.key("top").begin_array();
    for (const std::size_t c : order_) {
      object.begin_object().member("prediction", classes_.at(c)).member("class", c);
      object.member("probability", probabilities_[c]).end_object();
    }
    object.end_array();
  }
  if (format_.all) object.member("probabilities", probabilities_);
  put(object.end_object().text());
}

void PredictionWriter::print_row(const std::string& input, std::int64_t sample) const {
  std::string line;
  for (const std::size_t c : order_)
    line += (line.empty() ? "" : ", ") + base::escape_text(classes_.at(c)) +
            base::number_text(" %.2f %%", 100 * probabilities_[c]);
  if (format_.all) {
    line += "  |";
    for (const double probability : probabilities_) line += base::number_text(" %.4f", probability);
  }
  std::printf("%-32s  %8lld  %s\n", base::escape_text(input).c_str(),
              static_cast<long long>(sample), line.c_str());
}

}  // namespace tools
