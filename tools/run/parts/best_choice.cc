// Implements checks and defaults.
#include "tools/run/parts/best_choice.h"

#include "io/base/files/io_error.h"

namespace tools {
namespace {

// Returns true if the evaluated model is the one that a checkpoint would contain, without
// synchronizing the replicas for it.
bool evaluates_what_is_saved(const SessionOptions& options, const backends::Group& group) {
  return group.world_size() == 1 || options.evaluate.epochs ||
         (!options.averaging.of_parameters() && !engine::synchronizes_statistics(options.buffers));
}

const char* name_of(engine::Measure measure) {
  if (measure == engine::Measure::kR2) return "r2";
  if (measure == engine::Measure::kMeanIou) return "mean-iou";
  return measure == engine::Measure::kTop5 ? "top5" : to_string(measure);
}

engine::Measure automatic_measure(const io::Dataset& data) {
  using engine::Measure;
  if (data.label_traits().perplexity) return Measure::kPerplexity;
  if (data.target() != nullptr) return Measure::kLoss;
  if (data.find<io::MultiLabels>() != nullptr) return Measure::kMap;
  return data.find<io::PositionLabels>() != nullptr ? Measure::kMeanIou : Measure::kAccuracy;
}

engine::Measure measure_of(const BestOptions& options, const io::Dataset& data) {
  using engine::Measure;
  const bool text = data.label_traits().perplexity, numbers = data.target() != nullptr,
             labels = data.find<io::MultiLabels>() != nullptr,
             positions = data.find<io::PositionLabels>() != nullptr;
  const Measure measure = options.keep.measure.value_or(automatic_measure(data));
  if (labels && measure != Measure::kLoss && measure != Measure::kMap)
    throw io::ConfigError(std::string("--keep-best ") + name_of(measure) +
                          " is not for --task multi-label; expected loss or map");
  if (measure == Measure::kMap && !labels)
    throw io::ConfigError("--keep-best map requires --task multi-label; " + data.name + " has " +
                          data.label_traits().labels);
  if (measure == Measure::kMeanIou && !positions)
    throw io::ConfigError(
        "--keep-best mean-iou requires a class for each position; the labels of " + data.name +
        " are " + data.label_traits().labels);
  if (numbers && measure != Measure::kLoss && measure != Measure::kR2)
    throw io::ConfigError(std::string("--keep-best ") + name_of(measure) +
                          " is not for --task regression; expected loss or r2");
  if (measure == Measure::kR2 && !numbers)
    throw io::ConfigError("--keep-best r2 requires --task regression; " + data.name +
                          " has classes");
  if (measure == Measure::kPerplexity && !text)
    throw io::ConfigError("--keep-best perplexity is for text, not for " + data.name);
  if (measure == Measure::kTop5 && data.classes() <= 5)
    throw io::ConfigError("--keep-best top5 needs more than 5 classes; " + data.name + " has " +
                          std::to_string(data.classes()));
  return measure;
}

}  // namespace

std::unique_ptr<engine::BestModel> make_best_model(const SessionSetting& setting,
                                                   const std::string& test_digest) {
  using When = BestOptions::Keep::When;
  const SessionOptions& options = setting.options;
  const SessionData& data = setting.data;
  const BestOptions& o = options.best;
  const bool evaluated = options.evaluate.count > 0 && data.test().size() > 0;
  if (!evaluated && (o.keep.when == When::kAlways || o.patience > 0))
    throw io::ConfigError("--keep-best and --early-stop go by evaluations, but " +
                          data.train().name + " has no test samples");
  const bool wanted =
      o.keep.when == When::kAlways || (o.keep.when == When::kWhereItChangesNothing &&
                                       evaluates_what_is_saved(options, setting.group));
  const bool keep = wanted && evaluated && !options.keeping.directory.empty();
  if (!keep && o.patience == 0) return nullptr;
  return std::make_unique<engine::BestModel>(
      engine::BestModelOptions{.measure = measure_of(o, data.train()),
                               .keep = keep,
                               .patience = o.patience,
                               .min_delta = o.min_delta,
                               .test_digest = test_digest});
}

std::unique_ptr<engine::EpochAverage> make_epoch_average(
    const SessionSetting& setting, SessionModel& model,
    std::function<void(std::int64_t epoch)> recompute_statistics) {
  const SessionOptions& options = setting.options;
  if (options.average_last == 0) return nullptr;
  const engine::RunLength length = run_length(options, setting.data);
  const std::int64_t epochs = length.total_epochs({});
  if (options.average_last > epochs)
    throw io::ConfigError("--average-last " + std::to_string(options.average_last) +
                          " needs as many epochs; this run has " + std::to_string(epochs));
  return std::make_unique<engine::EpochAverage>(
      model.state, model.context,
      engine::EpochAverageOptions{.epochs = options.average_last,
                                  .run = length,
                                  .device = setting.compute.device,
                                  .recompute_statistics = std::move(recompute_statistics)});
}

}  // namespace tools
