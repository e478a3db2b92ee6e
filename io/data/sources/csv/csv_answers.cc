// Draws rows, and measures targets.
#include "io/data/sources/csv/csv_answers.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "io/base/files/io_error.h"
#include "io/base/numbers/split_mix.h"
#include "io/base/text/text_format.h"

namespace io {
namespace {

constexpr std::uint64_t kSplitStream =
    0x637376;  // keeps the split's random numbers apart from the sample order's

}  // namespace

std::vector<bool> draw_test_rows(const CsvLabels& labels, double share, std::uint64_t seed) {
  std::vector<std::vector<std::size_t>> rows(labels.names.size());
  for (std::size_t i = 0; i < labels.ids.size(); ++i)
    rows[static_cast<std::size_t>(labels.ids[i])].push_back(i);
  std::vector<bool> test(labels.ids.size(), false);
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

CsvLabels one_class(std::size_t rows) { return {std::vector<std::int32_t>(rows, 0), {""}}; }

TargetScale measure_target(const std::string& file, const std::string& title,
                           const std::vector<double>& numbers, std::size_t first,
                           const std::vector<std::size_t>& training) {
  TargetScale scale{.name = title};
  const auto count = static_cast<double>(training.size());
  double sum = 0, squares = 0;
  for (const std::size_t row : training) sum += numbers[row - first];
  scale.mean = sum / count;
  for (const std::size_t row : training) {
    const double above = numbers[row - first] - scale.mean;
    squares += above * above;
  }
  scale.deviation = std::sqrt(squares / count);
  if (!(scale.deviation > 1e-12 * std::abs(scale.mean)))
    throw DataError(file + ": " + scale.name + ", the target, is " + io::shortest_text(scale.mean) +
                    " in all " + std::to_string(training.size()) +
                    " training rows, expected numbers that differ");
  return scale;
}

}  // namespace io
