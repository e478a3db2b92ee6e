// Averages in the model's place.
#include "tools/run/data/saved_weights.h"

#include <map>

#include "engine/train/weight_average.h"
#include "io/base/files/io_error.h"
#include "io/interchange/array_files.h"

namespace tools {
namespace {

using engine::AverageKind;
using io::Section;

struct Choice {
  const char* weights;
  AverageKind kind;
  const char* what;
};
constexpr Choice kChoices[] = {
    {"ema", AverageKind::kMoving, "a moving average of the weights (train --ema)"},
    {"average", AverageKind::kEpochs,
     "an average of the weights of epochs (train --average-last)"}};

void require_average(const std::string& weights, const std::string& path,
                     const io::Checkpoint& checkpoint) {
  const AverageKind found = engine::average_kind(checkpoint);
  std::string missing, other;
  for (const Choice& choice : kChoices) {
    if (weights == choice.weights && choice.kind != found) missing = choice.what;
    if (choice.kind == found) other = "; it has " + std::string(choice.what);
  }
  if (!missing.empty()) throw io::DataError(path + " does not have " + missing + other);
  if (!engine::average_is_complete(checkpoint))
    throw io::DataError(path + ": the average of the weights is not complete before the run's end");
}

}  // namespace

void add_weights_option(CLI::App& app, std::string& weights) {
  std::vector<std::string> names{"model"};
  for (const Choice& choice : kChoices) names.emplace_back(choice.weights);
  app.add_option("--weights", weights,
                 "the model's weights, or an average of train --ema or --average-last")
      ->check(CLI::IsMember(names))
      ->default_str("model");
}

void choose_weights(const std::string& weights, const std::string& path,
                    io::Checkpoint& checkpoint) {
  if (weights == "model") return;
  require_average(weights, path, checkpoint);
  std::map<std::string, io::NamedArray> average;
  for (io::NamedArray& array : checkpoint.arrays)
    if (array.section == Section::kAverage) average[array.name] = std::move(array);
  std::erase_if(checkpoint.arrays, [](const io::NamedArray& array) {
    return array.section != Section::kParameter && array.section != Section::kBuffer;
  });
  for (io::NamedArray& array : checkpoint.arrays) {
    const auto found = average.find(array.name);
    if (found == average.end() && array.section == Section::kParameter)
      throw io::DataError(path + ": its average of the weights has no '" + array.name + "'");
    if (found == average.end()) continue;
    found->second.section = array.section;
    array = std::move(found->second);
  }
}

std::vector<io::NamedArray> load_weights(const std::string& weights, const std::string& path,
                                         std::vector<io::UnreadArray>* unread) {
  if (weights == "model") return io::load_arrays(path, unread);
  io::Checkpoint checkpoint = io::load_checkpoint(path);
  choose_weights(weights, path, checkpoint);
  return std::move(checkpoint.arrays);
}

}  // namespace tools
