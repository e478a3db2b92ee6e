// Loads a checkpoint into a model that computes.
#include "tools/commands/predict/trained_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/train/checks/finite_guard.h"
#include "engine/train/saving/checkpoint_manager.h"
#include "engine/train/saving/weights.h"
#include "io/checkpoint/array_source.h"
#include "io/checkpoint/byte_source.h"
#include "io/data/readers/csv/csv_coding.h"
#include "io/data/readers/tokens/text_files.h"
#include "io/interchange/array_files.h"
#include "models/model_catalog.h"
#include "tools/commands/predict/evaluation_data.h"
#include "tools/commands/predict/saved_run.h"
#include "tools/folder/run_reference.h"
#include "tools/options/input/command_line.h"
#include "tools/options/table/value_text.h"
#include "tools/report/output/exit_codes.h"
#include "tools/run/choices/train_arguments.h"
#include "tools/run/data/sample_statement.h"
#include "tools/run/data/saved_weights.h"

namespace tools {
namespace {

// Throws as opening does if the file contains no weights.
bool is_checkpoint_file(const std::string& path) {
  if (models::is_published_model(path)) return false;
  std::unique_ptr<io::ByteSource> bytes = io::open_bytes(path);
  if (io::is_checkpoint(*bytes)) return true;
  static_cast<void>(io::open_arrays(std::move(bytes)));
  return false;
}

// Returns true if the command line selects other samples of the data than the run.
bool asks_for_other_samples(const ConfigValues& values) {
  const auto other = [](const std::string& name) {
    return name != "model" && name != "dtype" && name != "data-dir" && name != "annotations" &&
           name != "image-cache-mb" && name != "seed" && name != "test-share";
  };
  return values.contains("limit") ||
         std::ranges::any_of(saved_options(), [&](const std::string& name) {
           return other(name) && values.contains(name);
         });
}

bool names_data(const ConfigValues& values) {
  return values.contains("data-dir") || values.contains("annotations") ||
         values.contains("dataset");
}

// Returns the options for reading tables that the command line names.
io::CsvOptions::Given named_for_reading(const ConfigValues& values) {
  return {.separator = values.contains("separator"),
          .decimal = values.contains("csv-decimal"),
          .missing = values.contains("csv-missing"),
          .header = values.contains("csv-header"),
          .label = values.contains("label-column")};
}

// `values` are the checkpoint's options, without those of the command line.
std::optional<io::DatasetOptions> data_of_run(ConfigValues values) {
  if (!values.contains("dataset")) return std::nullopt;
  std::erase_if(values, [](const auto& entry) {
    return entry.first != "limit" && std::ranges::count(saved_options(), entry.first) == 0;
  });
  complete_values(values, "");
  io::DatasetOptions set = resolve_run_config(values).data.set;
  set.csv.given = {};  // the command names none of them
  return set;
}

std::string canonical(const OptionSpec& option, const std::string& value) {
  return canonical_text(option, value).value_or(value);
}

// The run's own split applies: options that would draw test rows from its training rows are
// rejected. Other data may name the label differently.
void refuse_other_split(const ConfigValues& values, ConfigValues saved, const std::string& path) {
  apply_defaults(saved);
  std::vector<const char*> names{"seed", "test-share"};
  if (!names_data(values)) names.insert(names.end(), {"label-column", "csv-header"});
  for (const char* name : names) {
    const auto given = values.find(name);
    if (given == values.end()) continue;
    const OptionSpec& option = *find_option(name);
    const std::string now = canonical(option, given->second.value),
                      before = canonical(option, saved.find(name)->second.value);
    if (now != before)
      throw io::ConfigError(path + " was trained with --" + name + " " +
                            (before.empty() ? "unset" : before) + ", asked for is " + now + " (" +
                            given->second.source +
                            "): it would draw other test rows than the run's own; leave it out");
  }
}

// The checkpoint states how samples are coded, so that `engine predict` reads no other data:
// options that select data or say how a model learns from them have no effect. The run's own values
// are accepted.
void refuse_unused(const ConfigValues& values, ConfigValues saved, const std::string& path) {
  apply_defaults(saved);
  for (const auto& [name, value] : values) {
    const OptionSpec& option = *find_option(name);
    if (option.of_inputs || !(option.of_model || name == "limit")) continue;
    if (canonical(option, value.value) == canonical(option, saved.find(name)->second.value))
      continue;
    throw io::ConfigError("--" + name + " is '" + value.value +
                          "', but engine predict does not use it: it predicts every sample of its "
                          "inputs, coded as " +
                          path + " states; leave it out");
  }
}

void check_normalization(const ConfigValues& values, const StatedCoding& stated,
                         const std::string& path) {
  const auto given = values.find("normalize");
  if (given == values.end() || stated.normalization) return;
  throw io::ConfigError("--normalize " + given->second.value + " is for images, but the model of " +
                        path + " takes " + std::string(stated.coding->like.sample_traits().noun) +
                        "; leave it out");
}

// Returns the coding of images of folders with another side, in pixels.
std::shared_ptr<const io::SampleCoding> with_size(const io::SampleCoding& coding,
                                                  std::int64_t side) {
  auto changed = std::make_shared<io::SampleCoding>(coding);
  changed->like.set_shape({side, side, coding.like.shape()[2]});
  return changed;
}

std::shared_ptr<LoadedData> without_samples(const io::SampleCoding& coding) {
  auto data = std::make_shared<LoadedData>();
  data->splits.train = coding.like;
  data->splits.coding = coding.table;
  return data;
}

DataOptions options_of(const RunConfig& config, const ModelReference& reference, DataUse use) {
  DataOptions options = config.data;
  if (!options.normalization) options.normalization = reference.normalization;
  // The coding is computed from the samples that the run had.
  if (use == DataUse::kCoding && reference.other_samples)
    options.set = as_the_run(reference, options.set).value_or(options.set);
  return options;
}

std::shared_ptr<LoadedData> load(const DataOptions& options, const ModelReference& reference,
                                 DataUse use, const backends::Group& group,
                                 backends::Communicator& control) {
  if (use == DataUse::kCoding && reference.coding) return without_samples(*reference.coding);
  const auto read = use == DataUse::kSamples ? read_evaluation_data : read_coding;
  std::shared_ptr<LoadedData> data = load_collectively(
      options, group, control, nullptr,
      [&](const io::DatasetOptions& set, LoadedData& loaded) { read(reference, set, loaded); });
  if (use == DataUse::kCoding)
    data->splits.coding = io::reading_with(data->splits.coding, reference.reading, reference.path);
  return data;
}

engine::Graph graph_of(const RunConfig& config, const io::Dataset& set) {
  return models::build_model(config.model.name, {.sample_shape = sample_shape(set),
                                                 .classes = set.classes(),
                                                 .regression = config.model.regression_loss(),
                                                 .label_shape = label_shape(set),
                                                 .definition = config.model.definition});
}

}  // namespace

std::vector<std::string> trained_model_options() {
  std::vector<std::string> options{
      "limit",   "threads",     "bind",         "device",  "devices",    "gpu-devices", "amp",
      "backend", "local-stage", "init-method",  "rank",    "world-size", "local-rank",  "spawn",
      "iface",   "port-rule",   "rdzv-timeout", "timeout", "encrypt",    "relay"};
  options.insert(options.end(), saved_options().begin(), saved_options().end());
  return options;
}

RunConfig trained_config(ModelReference& reference, ConfigValues& values, DataUse use) {
  reference.given = reference.path;
  const io::CsvOptions::Given named = named_for_reading(values);
  const auto describe = [&](const std::string& file) {
    reference.path = file;
    return is_checkpoint_file(file) ? std::optional(io::load_description(file)) : std::nullopt;
  };
  const std::optional<io::Checkpoint> found =
      read_checkpoint(reference.given, choice_for(reference.weights), describe);
  std::string definition;
  bool resized = false;
  if (models::is_published_model(reference.path)) {
    values.try_emplace("model", ConfigValue{reference.path, reference.path});
    reference.tokenizer = io::read_stored_tokenizer(reference.path);
  }
  if (found) {
    const io::Checkpoint& checkpoint = *found;
    reference.of_run = !is_import(checkpoint);
    reference.names_data = names_data(values);
    reference.data_digest = checkpoint.data_digest;
    reference.test_digest = checkpoint.test_digest;
    reference.tokenizer = checkpoint.tokenizer;
    reference.other_samples = asks_for_other_samples(values);
    const ConfigValues saved = options_in(checkpoint, reference.path);
    const StatedCoding stated = stated_coding(checkpoint, reference.path);
    if (stated.coding) {
      check_columns(values, saved, reference.path);
      check_normalization(values, stated, reference.path);
    }
    if (use == DataUse::kCoding && stated.coding)
      refuse_unused(values, saved, reference.path);
    else
      refuse_other_split(values, saved, reference.path);
    reference.coding_of_run = stated.coding;
    reference.normalization = stated.normalization;
    resized = use == DataUse::kCoding && stated.coding && values.contains("image-size");
    if (!stated.coding || reference.other_samples) reference.data_of_run = data_of_run(saved);
    if (!values.contains("model")) definition = checkpoint.definition;
    take_saved_options(saved, values);
    if (const auto limit = saved.find("limit"); limit != saved.end())
      values.try_emplace("limit", limit->second);
  }
  take_vocabulary(values);
  complete_values(values, "");
  RunConfig config = resolve_run_config(values);
  if (resized)
    reference.coding_of_run = with_size(*reference.coding_of_run, config.data.set.images.size);
  config.data.set.csv.given = named;
  reference.reading = config.data.set.csv;
  reference.coding = io::reading_with(reference.coding_of_run, reference.reading);
  config.model.definition =
      definition.empty() ? models::model_definition(config.model.name) : definition;
  return config;
}

TrainedModel::TrainedModel(const RunConfig& config, const ModelReference& reference,
                           backends::Group& group, DataUse use)
    : control_(host_communicator(group)),
      compute_(choose_compute(config.compute, group, *control_)),
      options_(options_of(config, reference, use)),
      loaded_(load(options_, reference, use, group, *control_)),
      digest_(use == DataUse::kCoding && !reference.coding ? reference.data_digest : ""),
      path_(reference.path),
      graph_(graph_of(config, loaded_->splits.train)),
      state_(engine::ModelState::allocate(graph_, engine::state_dtype(compute_.storage))),
      pool_(compute_.make_pool()) {
  state_.initialize(graph_, 0, engine::ModelState::nothing);
  std::vector<io::UnreadArray> unread;
  const auto load = [&](const std::string& file) {
    path_ = file;
    std::vector<io::NamedArray> arrays = load_weights(reference.weights, file, &unread,
                                                      {config.model.name, config.model.definition});
    refuse_separate_queries(arrays, file, state_);
    return arrays;
  };
  const auto read = [&](const std::string& path) {
    return read_checkpoint(reference.given, choice_for(reference.weights), load, path);
  };
  engine::init_from(*control_, reference.path, read, exit_code_of, state_, {}, unread);
  if (const auto bad = engine::first_not_finite(state_, /*statistics=*/true))
    throw io::DataError(path_ + ": '" + state_.entries[*bad].name +
                        "' is not finite (NaN or infinity): the training that wrote it had "
                        "diverged; evaluate an earlier checkpoint");
}

bool TrainedModel::other_data() const {
  if (digest_.empty()) return loaded_->hold_out;
  return !(loaded_->digest.text.empty() ? data_digest(data()) : loaded_->digest).is(digest_);
}

}  // namespace tools
