// Draws rows, and measures targets.
#include "io/data/readers/csv/csv_answers.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "io/base/files/io_error.h"
#include "io/base/numbers/split_mix.h"
#include "io/base/text/text_parts.h"

namespace io {
namespace {

constexpr std::uint64_t kSplitStream =
    0x637376;  // separates the split's random numbers from those of the sample order

std::vector<bool> draw_of_classes(const std::vector<std::int32_t>& ids, std::size_t classes,
                                  double share, std::uint64_t seed) {
  std::vector<std::vector<std::size_t>> rows(classes);
  for (std::size_t i = 0; i < ids.size(); ++i) rows[static_cast<std::size_t>(ids[i])].push_back(i);
  std::vector<bool> test(ids.size(), false);
  for (std::size_t c = 0; c < rows.size(); ++c) {
    SplitMix random(seed, kSplitStream, c);
    std::vector<std::size_t>& own = rows[c];
    const auto wanted =
        static_cast<std::size_t>(std::llround(share * static_cast<double>(own.size())));
    for (std::size_t i = 0; i < std::min(wanted, own.size() - 1); ++i) {
      std::swap(own[i], own[i + random.below(static_cast<std::uint32_t>(own.size() - i))]);
      test[own[i]] = true;
    }
  }
  return test;
}

class Classes : public CsvAnswers {
 public:
  explicit Classes(CsvLabels labels) : labels_(std::move(labels)) {}

  std::vector<bool> draw_test_rows(double share, std::uint64_t seed) const override {
    return draw_of_classes(labels_.ids, labels_.names.size(), share, seed);
  }
  Labels labels(const std::vector<std::size_t>&, const TargetScale*) const override {
    return ClassLabels{
        .ids = labels_.ids, .count = std::ssize(labels_.names), .names = labels_.names};
  }

 private:
  const CsvLabels labels_;
};

class Numbers : public CsvAnswers {
 public:
  Numbers(std::string file, std::string title, std::vector<double> numbers)
      : file_(std::move(file)), title_(std::move(title)), numbers_(std::move(numbers)) {}

  std::vector<bool> draw_test_rows(double share, std::uint64_t seed) const override {
    return draw_of_classes(std::vector<std::int32_t>(numbers_.size(), 0), 1, share, seed);
  }
  Labels labels(const std::vector<std::size_t>& training, const TargetScale* like) const override {
    TargetValues targets{.scale = like != nullptr ? *like : measured(training)};
    for (const double number : numbers_)
      targets.values.push_back(targets.scale.standardized(number));
    return targets;
  }

 private:
  TargetScale measured(const std::vector<std::size_t>& training) const {
    TargetScale scale{.name = title_};
    std::vector<double> values;
    values.reserve(training.size());
    for (const std::size_t row : training) values.push_back(numbers_[row]);
    const Spread spread = spread_of(values);
    scale.mean = spread.mean;
    scale.deviation = spread.deviation;
    if (spread.constant)
      throw DataError(file_ + ": " + scale.name + ", the target, is " +
                      base::shortest_text(scale.mean) + " in all " +
                      std::to_string(training.size()) +
                      " training rows, expected numbers that differ within 15 digits");
    return scale;
  }

  const std::string file_, title_;
  const std::vector<double> numbers_;
};

class Flags : public CsvAnswers {
 public:
  explicit Flags(MultiLabels labels) : labels_(std::move(labels)) {}

  std::vector<bool> draw_test_rows(double share, std::uint64_t seed) const override {
    const std::size_t rows = labels_.values.size() / labels_.names.size();
    return draw_of_classes(std::vector<std::int32_t>(rows, 0), 1, share, seed);
  }
  Labels labels(const std::vector<std::size_t>&, const TargetScale*) const override {
    return labels_;
  }

 private:
  const MultiLabels labels_;
};

std::string text_of_kind(const std::string& title, const ClassLabels& labels) {
  return "label " + title + " (" + std::to_string(labels.count) + " classes)";
}
std::string text_of_kind(const std::string& title, const TargetValues& targets) {
  return "target " + title + " (mean " + base::number_text("%.4g", targets.scale.mean) +
         ", deviation " + base::number_text("%.4g", targets.scale.deviation) + ")";
}
std::string text_of_kind(const std::string&, const MultiLabels& labels) {
  constexpr std::size_t kMaxNames = 5;
  std::vector<std::string> names = labels.names;
  const std::size_t more = names.size() - std::min(names.size(), kMaxNames);
  names.resize(names.size() - more);
  return "labels of 0 or 1: " + base::join_text(names) +
         (more > 0 ? " and " + std::to_string(more) + " more" : "");
}
template <class Kind>
std::string text_of_kind(const std::string& title, const Kind&) {
  return "label " + title;
}

}  // namespace

std::unique_ptr<CsvAnswers> read_classes(const CsvTable& table, std::size_t index,
                                         std::size_t first, const CsvMissing& missing) {
  return std::make_unique<Classes>(read_labels(table, index, first, missing));
}

std::unique_ptr<CsvAnswers> read_numbers(const CsvTable& table, std::size_t index,
                                         std::size_t first, char decimal, const CsvMissing& missing,
                                         const std::string& title) {
  return std::make_unique<Numbers>(table.name(), title,
                                   read_targets(table, index, first, decimal, missing, title));
}

std::unique_ptr<CsvAnswers> read_flags(const CsvTable& table,
                                       const std::vector<std::size_t>& indices, std::size_t first,
                                       const CsvMissing& missing,
                                       const std::vector<std::string>& titles) {
  std::vector<float> flags;
  for (std::size_t row = first; row < table.rows(); ++row)
    for (std::size_t k = 0; k < indices.size(); ++k)
      flags.push_back(read_flag(table, indices[k], row, missing, titles[k]));
  return flag_answers(titles, std::move(flags));
}

std::unique_ptr<CsvAnswers> class_answers(const std::vector<std::string>& names) {
  return std::make_unique<Classes>(
      classes_of(std::vector<std::string_view>(names.begin(), names.end())));
}

std::unique_ptr<CsvAnswers> number_answers(const std::string& file, const std::string& title,
                                           std::vector<double> numbers) {
  return std::make_unique<Numbers>(file, title, std::move(numbers));
}

std::unique_ptr<CsvAnswers> flag_answers(const std::vector<std::string>& titles,
                                         std::vector<float> flags) {
  return std::make_unique<Flags>(MultiLabels{.names = titles, .values = std::move(flags)});
}

std::string answers_text(const std::string& title, const Labels& labels) {
  return std::visit([&](const auto& kind) { return text_of_kind(title, kind); }, labels);
}

}  // namespace io
