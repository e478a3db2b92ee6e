// Uses the checkpoint first, then run.json, then the data set, then the model's defaults.
#include "tools/run/data/saved_input.h"

#include <filesystem>
#include <optional>

#include "io/base/files/io_error.h"
#include "io/data/sources/dataset_registry.h"
#include "models/model_catalog.h"
#include "tools/folder/run_record.h"
#include "tools/options/input/command_line.h"
#include "tools/options/table/run_config.h"
#include "tools/options/table/session_options.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"
#include "tools/run/data/sample_statement.h"
#include "tools/run/data/session_data.h"

namespace tools {
namespace {

// Returns the record of the run that wrote the checkpoint, if the checkpoint is in the run's
// folder.
std::optional<RunRecord> record_beside(const io::Checkpoint& checkpoint, const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const std::string folder = parent.empty() ? "." : parent;
  if (checkpoint.run_id.empty()) return std::nullopt;
  std::string fault;
  std::optional<RunRecord> record = find_run_record(folder, fault);
  if (!fault.empty()) print_notice(fault + "; used without it");
  if (!record || record->id != checkpoint.run_id || record->data.shape.size() != 3)
    return std::nullopt;
  return record;
}

SavedInput of_record(const RunData& data, const std::string& dataset) {
  const bool text = dataset == "text" || dataset == "tinyshakespeare" || dataset == "tokens";
  SavedInput input{.sample_shape = text ? engine::Shape{data.shape[0]} : engine::Shape(data.shape),
                   .classes = data.classes,
                   .vocabulary = data.vocabulary};
  if (!text && dataset != "csv") input.normalization = data.normalization;
  return input;
}

SavedInput of_set(const io::Dataset& set, std::optional<io::Normalization> normalization) {
  SavedInput input{.sample_shape = sample_shape(set),
                   .label_shape = label_shape(set),
                   .classes = set.classes(),
                   .vocabulary = set.vocabulary(),
                   .class_names = set.class_names()};
  if (const io::TargetScale* target = set.target()) input.target = *target;
  input.multi_label = set.find<io::MultiLabels>() != nullptr;
  if (const auto* images = set.find<io::ImageSamples>()) {
    input.normalization = normalization;
    input.mean = images->format.mean;
    input.deviation = images->format.deviation;
  }
  return input;
}

SavedInput of_statement(const InputSchema& stated, const std::string& vocabulary) {
  SavedInput input = of_set(stated.splits.train, stated.normalization);
  input.vocabulary = vocabulary;
  input.table = stated.splits.coding;
  return input;
}

SavedInput of_data(const ConfigValues& given) {
  ConfigValues values = given;
  complete_values(values, "");
  const DataOptions options = resolve_run_config(values).data;
  const io::DatasetSplits splits = io::load_dataset(options.set);
  SavedInput input = of_set(splits.train, normalization(options, splits.train));
  input.table = splits.coding;
  return input;
}

}  // namespace

SavedInput saved_input(const io::Checkpoint* checkpoint, const std::string& path,
                       const ConfigValues& values, bool other_data, bool statistics) {
  if (checkpoint != nullptr && !other_data && !checkpoint->samples.empty())
    return of_statement(read_sample_statement(checkpoint->samples, path), checkpoint->vocabulary);
  if (checkpoint != nullptr && !other_data) {
    const std::optional<RunRecord> record = record_beside(*checkpoint, path);
    if (record) {
      SavedInput input = of_record(record->data, checkpoint->dataset);
      if (!statistics || input.normalization != io::Normalization::kStandard) return input;
    }
  }
  if (values.contains("dataset")) return of_data(values);
  const models::ModelOptions options = models::default_options(values.at("model").value);
  return {.sample_shape = options.sample_shape, .classes = options.classes, .is_default = true};
}

void require_no_dataset(const ConfigValues& given) {
  for (const auto& [name, value] : given)
    if (name != "model" && name != "dtype")
      throw UsageError("--" + name +
                       " needs --dataset, without which the model has its default sizes");
}

}  // namespace tools
