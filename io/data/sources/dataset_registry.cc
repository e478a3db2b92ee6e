// Finds a data set by its name, loads it and measures its channels.
#include "io/data/sources/dataset_registry.h"

#include <limits>

#include "io/base/files/io_error.h"
#include "io/base/text/nearest.h"
#include "io/base/text/text_parts.h"
#include "io/data/dataset/class_weights.h"
#include "io/data/dataset/sample_coding.h"
#include "io/data/images/channel_statistics.h"
#include "io/data/readers/arrays/array_splits.h"
#include "io/data/readers/csv/csv_files.h"
#include "io/data/readers/drawn/glyphs.h"
#include "io/data/readers/drawn/synthetic.h"
#include "io/data/readers/image_files/cifar10_files.h"
#include "io/data/readers/image_files/idx_files.h"
#include "io/data/readers/image_files/image_folder.h"
#include "io/data/readers/image_files/labelled_images.h"
#include "io/data/readers/tokens/text_files.h"

namespace io {
namespace {

void check_positive(const char* what, std::int64_t found, std::int64_t highest) {
  if (found >= 1 && found <= highest) return;
  throw ConfigError(std::string(what) + " is " + std::to_string(found) + ", expected 1.." +
                    std::to_string(highest));
}

DatasetSplits make_synthetic(const DatasetOptions& options) {
  constexpr std::int64_t kMaxBytes = std::int64_t{1} << 40;
  std::int64_t highest =
      kMaxBytes;  // each factor leaves less for the next, so that no product overflows
  for (const std::int64_t extent : options.synthetic.shape) {
    check_positive("a side or the channel count of the synthetic images", extent, highest);
    highest /= extent;
  }
  check_positive("the number of synthetic images", options.synthetic.size, highest);
  check_positive("the number of synthetic classes", options.synthetic.classes,
                 std::numeric_limits<std::int32_t>::max());
  const std::int64_t test_size = (options.synthetic.size + 9) / 10;
  if (options.synthetic.context > 0) {
    check_positive("the number of tokens in a synthetic text", options.synthetic.context,
                   kMaxBytes / 4 / options.synthetic.size);
    const auto draw = [&options](std::int64_t count, std::uint64_t stream) {
      return draw_synthetic_tokens(options.synthetic.context, options.synthetic.classes, count,
                                   options.seed, stream);
    };
    return {draw(options.synthetic.size, 0), draw(test_size, 1)};
  }
  return {draw_synthetic(options.synthetic.shape, options.synthetic.classes, options.synthetic.size,
                         options.seed, 0),
          draw_synthetic(options.synthetic.shape, options.synthetic.classes, test_size,
                         options.seed, 1)};
}

DatasetSplits read_idx(const DatasetOptions& options) {
  return read_idx_splits(options.name, options.directory, options.parts, options.test_is_optional);
}
DatasetSplits read_cifar10(const DatasetOptions& options) {
  return read_cifar10_splits(options.directory, options.parts, options.test_is_optional);
}
DatasetSplits read_images(const DatasetOptions& options) {
  return options.task == Task::kMultiLabel ? read_labelled_splits(options)
                                           : read_image_folder_splits(options);
}
DatasetSplits make_glyphs(const DatasetOptions& options) {
  return {draw_glyphs(GlyphSplit::kTrain, kGlyphTrainCount, options.seed),
          draw_glyphs(GlyphSplit::kTest, kGlyphTestCount, options.seed)};
}

// One row of the table of data sets; add a row for a new one.
struct Entry {
  const char* name;
  DatasetSplits (*read)(const DatasetOptions& options);
};
constexpr Entry kDatasets[] = {
    {"mnist", read_idx},
    {"fashion-mnist", read_idx},
    {"cifar10", read_cifar10},
    {"text", read_text_splits},
    {"tinyshakespeare", read_text_splits},
    {"tokens", read_token_splits},
    {"csv", read_csv_splits},
    {"images", read_images},
    {"arrays", read_array_splits},
    {"glyphs", make_glyphs},
    {"synthetic", make_synthetic},
};

DatasetSplits read_or_make(const DatasetOptions& options) {
  for (const Entry& entry : kDatasets)
    if (options.name == entry.name) return entry.read(options);
  const std::vector<std::string> names = dataset_names();
  throw ConfigError("unknown data set '" + options.name + "'" +
                    base::did_you_mean(options.name, names) + " (known: " + base::join_text(names) +
                    ")");
}

// Channels are measured on the training images, if these are in memory; test images are scaled with
// the same numbers.
void measure(DatasetSplits& splits) {
  ImageSamples* const train = splits.train.find<ImageSamples>();
  ImageSamples* const test = splits.test.find<ImageSamples>();
  if (train == nullptr || test == nullptr) return;
  if (!train->source && splits.train.size() > 0) measure_channels(train->pixels, train->format);
  test->format.mean = train->format.mean;
  test->format.deviation = train->format.deviation;
}

// Replaces channel statistics and classes of images by those of the coding; tables and texts have
// been read with theirs.
void code_images(const SampleCoding& coding, Dataset& part, const std::string& name,
                 std::vector<std::string>& lines) {
  const ImageFormat& like = coding.like.as<ImageSamples>().format;
  part.as<ImageSamples>().format.mean = like.mean;
  part.as<ImageSamples>().format.deviation = like.deviation;
  if (coding.inputs_only) return;
  match_classes(
      coding, part, [&](std::int64_t i) { return name + " sample " + std::to_string(i + 1); },
      lines);
}

void code(const SampleCoding& coding, DatasetSplits& splits) {
  check_kind(coding, splits.test.size() > 0 ? splits.test : splits.train);
  if (splits.test.find<ImageSamples>() == nullptr) return;
  code_images(coding, splits.test, "test", splits.unknown);
  if (splits.train.size() > 0)
    code_images(coding, splits.train, "training", splits.unknown);
  else
    splits.train = splits.test.like();
}

}  // namespace

std::vector<std::string> dataset_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kDatasets) names.emplace_back(entry.name);
  return names;
}

DatasetSplits load_dataset(const DatasetOptions& options) {
  if (options.limit < 0)
    throw ConfigError("the limit of training samples is " + std::to_string(options.limit) +
                      ", expected 0 or more");
  DatasetSplits splits = read_or_make(options);
  measure(splits);
  if (options.coding) code(*options.coding, splits);
  if (options.limit > 0 && options.limit < splits.train.size())
    splits.train.limit(options.limit, options.seed);  // measured as a whole
  if (options.limit > splits.train.size() && splits.train.size() > 0)
    splits.warnings.push_back("the limit of " + std::to_string(options.limit) +
                              " training samples changes nothing: there are " +
                              std::to_string(splits.train.size()));
  const auto* positions = splits.train.find<PositionLabels>();
  if (positions != nullptr && splits.train.size() > 0 && positions->labelled() == 0)
    splits.warnings.push_back("no position of the " + std::to_string(splits.train.size()) +
                              " training samples has a label that counts: every loss is 0");
  const auto* labels = splits.train.find<MultiLabels>();
  if (labels != nullptr && splits.train.size() > 0 && labels->known() == 0)
    throw DataError(splits.train.name + ": all labels of the " +
                    std::to_string(splits.train.size()) +
                    " training samples are unknown, expected 0 or 1 besides missing values");
  set_class_weights(options.class_weights, splits.train);
  return splits;
}

}  // namespace io
