// Replaces the model's weights by averages.
#include "tools/run/data/saved_weights.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <map>

#include "engine/train/saving/weights.h"
#include "engine/train/weight_average.h"
#include "io/base/files/io_error.h"
#include "io/base/text/escape_text.h"
#include "io/interchange/array_files.h"
#include "models/model_catalog.h"

namespace tools {
namespace {

using engine::AverageKind;

struct Choice {
  AverageKind kind;
  const char *name, *what;
};
constexpr Choice kChoices[] = {
    {AverageKind::kMoving, "ema", "a moving average of the weights (train --ema)"},
    {AverageKind::kEpochs, "average",
     "an average of the weights of epochs (train --average-last)"}};

void require_average(AverageKind weights, const std::string& path,
                     const io::Checkpoint& checkpoint) {
  const AverageKind found = engine::average_kind(checkpoint);
  std::string missing, other;
  for (const Choice& choice : kChoices) {
    if (weights == choice.kind && choice.kind != found) missing = choice.what;
    if (choice.kind == found) other = "; it has " + std::string(choice.what);
  }
  if (!missing.empty()) throw io::DataError(path + " does not have " + missing + other);
  if (!engine::average_is_complete(checkpoint))
    throw io::DataError(path + ": the average of the weights is not complete before the run's end");
}

}  // namespace

const char* weights_name(AverageKind weights) {
  const auto* choice = std::ranges::find(kChoices, weights, &Choice::kind);
  return choice == std::end(kChoices) ? "model" : choice->name;
}

void add_weights_option(CLI::App& app, AverageKind& weights) {
  std::vector<std::string> names{"model"};
  for (const Choice& choice : kChoices) names.emplace_back(choice.name);
  const auto take = [&weights](const std::string& name) {
    const auto* choice = std::ranges::find(kChoices, name, &Choice::name);
    weights = choice == std::end(kChoices) ? AverageKind::kNone : choice->kind;
  };
  app.add_option_function<std::string>(
         "--weights", take,
         "which weights of a checkpoint: the model's, or the average of train --ema or "
         "--average-last")
      ->check(CLI::IsMember(names))
      ->default_str("model");
}

void choose_weights(AverageKind weights, const std::string& path, io::Checkpoint& checkpoint) {
  if (weights == AverageKind::kNone) return;
  require_average(weights, path, checkpoint);
  std::map<std::string, io::NamedArray> average;
  for (io::NamedArray& array : checkpoint.arrays)
    if (array.section == io::Section::kAverage) average[array.name] = std::move(array);
  std::erase_if(checkpoint.arrays, [](const io::NamedArray& array) {
    return array.section != io::Section::kParameter && array.section != io::Section::kBuffer;
  });
  for (io::NamedArray& array : checkpoint.arrays) {
    const auto found = average.find(array.name);
    if (found == average.end() && array.section == io::Section::kParameter)
      throw io::DataError(path + ": its average of the weights has no '" + array.name + "'");
    if (found == average.end()) continue;
    found->second.section = array.section;
    array = std::move(found->second);
  }
}

void refuse_transposed_gpt2(const std::vector<io::NamedArray>& arrays, const std::string& path) {
  for (const io::NamedArray& array : arrays) {
    if (!array.name.ends_with(".attn.c_attn.weight") || array.shape.size() != 2 ||
        array.shape[1] != 3 * array.shape[0])
      continue;
    throw io::DataError(path + ": '" + array.name + "' has shape [" +
                        std::to_string(array.shape[0]) + ", " + std::to_string(array.shape[1]) +
                        "], inputs times outputs, as matrices of GPT-2 have in transformers; "
                        "expected --model DIR, its folder with config.json");
  }
}

void refuse_separate_queries(const std::vector<io::NamedArray>& arrays, const std::string& path,
                             const engine::ModelState& state,
                             const std::function<bool(const std::string& name)>& optional) {
  for (const io::NamedArray& array : arrays) {
    const std::string name = engine::plain_name(array.name);
    if (!name.ends_with(".self_attn.q_proj.weight") || (optional && optional(name)) ||
        std::ranges::count(state.entries, name, &engine::ModelState::Entry::name) > 0)
      continue;
    throw io::DataError(path + ": '" + base::escape_text(array.name) +
                        "' is one of three matrices, as models of transformers have for queries, "
                        "keys and values; expected --model DIR, its folder with config.json");
  }
}

std::vector<io::NamedArray> load_weights(AverageKind weights, const std::string& path,
                                         std::vector<io::UnreadArray>* unread,
                                         const ReadingModel& reader) {
  if (weights == AverageKind::kNone && models::is_published_model(path))
    return models::model_weights(path).arrays;
  if (weights == AverageKind::kNone) {
    std::vector<io::NamedArray> arrays = io::load_arrays(path, unread);
    from_foreign_layout(reader, path, arrays);
    refuse_transposed_gpt2(arrays, path);
    return arrays;
  }
  io::Checkpoint checkpoint = io::load_checkpoint(path);
  choose_weights(weights, path, checkpoint);
  return std::move(checkpoint.arrays);
}

}  // namespace tools
