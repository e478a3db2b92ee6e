// Parses the option, or counts.
#include "io/data/dataset/class_weights.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/base/text/real_number.h"
#include "io/base/text/text_parts.h"

namespace io {
namespace {

double ratio(std::int64_t part, std::int64_t of) {
  return part == 0 || of == 0 ? 1 : static_cast<double>(part) / static_cast<double>(of);
}

std::vector<double> balanced(std::span<const std::int32_t> ids, std::int64_t classes) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(classes), 0);
  std::int64_t all = 0;
  for (const std::int32_t id : ids) {
    if (id == PositionLabels::kIgnored) continue;
    ++counts[static_cast<std::size_t>(id)];
    ++all;
  }
  std::vector<double> weights;
  for (const std::int64_t count : counts) weights.push_back(ratio(all, classes * count));
  return weights;
}

std::vector<double> balanced(const MultiLabels& labels) {
  const std::size_t width = labels.names.size();
  std::vector<double> weights;
  for (std::size_t k = 0; k < width; ++k) {
    std::int64_t positives = 0, negatives = 0;
    for (std::size_t i = k; i < labels.values.size(); i += width) {
      positives += labels.values[i] == 1;
      negatives += labels.values[i] == 0;
    }
    weights.push_back(ratio(negatives, positives));
  }
  return weights;
}

std::vector<double> parsed(const std::string& option, const Dataset& train, bool zero) {
  std::vector<double> weights;
  for (const std::string& part : base::split_text(option, ',')) {
    const std::string text(base::trimmed(part));
    double weight = 0;
    const auto [end, error] = base::real_from_chars(text.data(), text.data() + text.size(), weight);
    const bool number = error == std::errc() && end == text.data() + text.size();
    if (!number || !(weight > 0 || (zero && weight == 0)) || !(weight <= 1e30))
      throw ConfigError("--class-weights: found '" + text.substr(0, 40) + "', expected " +
                        (zero ? "numbers from 0 to 1e30" : "numbers above 0, up to 1e30") +
                        ", or balanced");
    weights.push_back(weight);
  }
  if (std::ssize(weights) != train.classes())
    throw ConfigError("--class-weights has " + std::to_string(weights.size()) +
                      " numbers, expected " + std::to_string(train.classes()) + ", one for each " +
                      (zero ? "class" : "label") + " of " + train.name);
  return weights;
}

}  // namespace

void set_class_weights(const std::string& option, Dataset& train) {
  if (option.empty()) return;
  const bool counted = option == "balanced";
  if (auto* classes = train.find<ClassLabels>())
    classes->weights =
        counted ? balanced(classes->ids, classes->count) : parsed(option, train, true);
  else if (auto* positions = train.find<PositionLabels>())
    positions->weights =
        counted ? balanced(positions->ids, positions->count) : parsed(option, train, true);
  else if (auto* labels = train.find<MultiLabels>())
    labels->positive_weights = counted ? balanced(*labels) : parsed(option, train, false);
  else
    throw ConfigError("--class-weights is for classes and --task multi-label; the labels of " +
                      train.name + " are " + train.label_traits().labels);
}

}  // namespace io
