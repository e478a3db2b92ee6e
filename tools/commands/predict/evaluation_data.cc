// Recognizes the run's own data by their digest.
#include "tools/commands/predict/evaluation_data.h"

#include <utility>

#include "io/base/files/io_error.h"
#include "io/data/readers/csv/csv_coding.h"
#include "io/data/sources/dataset_registry.h"
#include "tools/run/data/sample_statement.h"

namespace tools {
namespace {

// Returns true if the data are the run's. `splits`: the parts that `options` select.
bool is_own(const ModelReference& model, const io::DatasetOptions& options,
            const io::DatasetSplits& splits) {
  if (model.data_digest.empty()) return model.of_run && !model.names_data;
  if (!model.other_samples) return data_digest(splits).is(model.data_digest);
  const std::optional<io::DatasetOptions> own = as_the_run(model, options);
  return own && data_digest(io::load_dataset(*own)).is(model.data_digest);
}

// Returns nothing for data that are not the run's: by their digest, or because they cannot be read
// like the run's.
std::optional<io::DatasetSplits> read_own(const ModelReference& model,
                                          const io::DatasetOptions& options) {
  try {
    io::DatasetSplits splits = io::load_dataset(options);
    if (is_own(model, options, splits)) return splits;
  } catch (const io::DataError&) {
    return std::nullopt;
  }
  return std::nullopt;
}

// A table has the name of its file, other data that of the kind of set, which does not say where
// they lie.
std::string place_of(const io::DatasetOptions& options, const io::DatasetSplits& splits) {
  return splits.test.name == options.name ? options.directory : splits.test.name;
}

// `--split` names another part than the run's on purpose, as other options request other samples.
void note_other_test_samples(const ModelReference& model, const io::DatasetOptions& options,
                             io::DatasetSplits& splits) {
  if (model.test_digest.empty() || model.other_samples || !options.test_part.empty() ||
      options.test_is_optional || test_data_digest(splits) == model.test_digest)
    return;
  splits.warnings.push_back("the test samples of " + place_of(options, splits) +
                            " differ from those of the run: " + model.path +
                            " was evaluated on others in training");
}

std::string counted_text(const io::DatasetSplits& splits, const io::DatasetOptions& options) {
  const bool training = options.test_is_optional && splits.train.size() > 0;
  return "all " + std::to_string((training ? splits.train : splits.test).size()) +
         (training ? " training samples count" : " test samples count");
}

void read_hold_out(const ModelReference& model, io::DatasetOptions options,
                   std::shared_ptr<const io::SampleCoding> coding, LoadedData& loaded) {
  options.coding = io::reading_with(std::move(coding), model.reading);
  options.parts = io::Parts::kHoldOut;
  loaded.hold_out = true;
  loaded.splits = io::load_dataset(options);
  io::DatasetSplits& splits = loaded.splits;
  splits.warnings.push_back("the data differ from those of the run: " + model.path +
                            " was trained on other samples than those of " +
                            place_of(options, splits) + "; " + counted_text(splits, options) +
                            ", coded as in " + options.coding->source);
  for (std::string& line : splits.unknown) splits.warnings.push_back(std::move(line));
}

// Recomputes the coding from the data that the run had.
std::shared_ptr<const io::SampleCoding> learned_coding(const ModelReference& model) {
  const std::string what =
      model.path + " does not state how its samples are coded (an earlier version wrote it)";
  if (!model.data_of_run)
    throw io::DataError(what +
                        ", and the data are not those that it was trained on: give those "
                        "with --data-dir or --annotations");
  const io::DatasetOptions& own = *model.data_of_run;
  const std::string place = own.csv.annotations.empty() ? own.directory : own.csv.annotations;
  io::DatasetSplits splits;
  try {
    splits = io::load_dataset(own);
  } catch (const io::DataError& error) {
    throw io::DataError(what + ", and the run's data cannot be read: " + error.what());
  }
  if (!model.data_digest.empty() && !data_digest(splits).is(model.data_digest))
    throw io::DataError(what + ", and " + place + " has changed since");
  return coding_of(splits, place);
}

// Returns true for data whose coding depends on them. Token ids and the numbers of arrays are the
// model's input as they are.
bool has_learned_coding(const io::DatasetSplits& splits) {
  const io::Dataset& train = splits.train;
  return splits.coding || train.find<io::ImageSamples>() != nullptr ||
         !train.class_names().empty() || !train.vocabulary().empty();
}

std::string own_coding_line(const ModelReference& model, const io::DatasetSplits& splits) {
  return model.path + " does not state how its samples are coded: coding and classes are learned " +
         "from " + splits.train.name + ", as if the model had been trained on it";
}

// For weights without a statement of their coding, or of their training data.
void read_by_itself(const ModelReference& model, const io::DatasetOptions& options,
                    LoadedData& loaded) {
  loaded.splits = io::load_dataset(options);
  io::DatasetSplits& splits = loaded.splits;
  if (!has_learned_coding(splits)) return;
  const std::int64_t test = splits.test.size(), all = test + splits.train.size();
  splits.warnings.push_back(own_coding_line(model, splits) + "; its test part has " +
                            std::to_string(test) + " of " + std::to_string(all) +
                            " samples, and --split train evaluates the others");
}

}  // namespace

std::optional<io::DatasetOptions> as_the_run(const ModelReference& model,
                                             const io::DatasetOptions& given) {
  if (!model.data_of_run || model.data_of_run->name != given.name) return std::nullopt;
  io::DatasetOptions own = *model.data_of_run;
  own.directory = given.directory;
  own.csv.annotations = given.csv.annotations;
  own.images.cache_bytes = given.images.cache_bytes;
  own.coding = model.coding_of_run;
  return own;
}

void read_coding(const ModelReference& model, const io::DatasetOptions& options,
                 LoadedData& loaded) {
  loaded.splits = io::load_dataset(options);
  io::DatasetSplits& splits = loaded.splits;
  if (!model.data_digest.empty() || !has_learned_coding(splits))
    splits.warnings.clear();  // the training has printed them, or they do not matter here
  else
    splits.warnings.push_back(own_coding_line(model, splits));
}

void read_evaluation_data(const ModelReference& model, const io::DatasetOptions& given,
                          LoadedData& loaded) {
  io::DatasetOptions options = given;
  options.coding = model.coding;
  if (std::optional<io::DatasetSplits> own = read_own(model, options)) {
    loaded.splits = *std::move(own);
    note_other_test_samples(model, options, loaded.splits);
    return;
  }
  if (model.coding) return read_hold_out(model, options, model.coding, loaded);
  if (!model.of_run) return read_by_itself(model, options, loaded);
  std::shared_ptr<const io::SampleCoding> coding;
  try {
    coding = learned_coding(model);
  } catch (const io::DataError&) {
    if (!model.data_digest.empty()) throw;
    return read_by_itself(model, options, loaded);
  }
  read_hold_out(model, options, std::move(coding), loaded);
}

}  // namespace tools
