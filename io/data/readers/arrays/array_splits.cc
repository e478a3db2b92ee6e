// Finds the files, and numbers their classes alike.
#include "io/data/readers/arrays/array_splits.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/data/dataset/sample_coding.h"
#include "io/data/files/data_folder.h"
#include "io/data/readers/arrays/array_file.h"
#include "io/interchange/array_files.h"

namespace io {
namespace {

constexpr const char* kHow =
    "expected train.npz and test.npz with the arrays x and y, or train_x.npy, train_y.npy, "
    "test_x.npy and test_y.npy";

// x is "" if there are none.
ArrayPaths find_files(const std::string& directory, const std::vector<std::string>& names) {
  ArrayPaths found;
  const auto take = [&](const ArrayPaths& paths) {
    if (!std::filesystem::exists(paths.x)) return;
    if (!found.x.empty())
      throw DataError("found " + found.x + " and " + paths.x + ", expected one of them");
    if (!paths.y.empty() && !std::filesystem::exists(paths.y))
      throw MissingFileError("found " + paths.x + ", but no " + paths.y + " with its labels");
    found = paths;
  };
  for (const std::string& name : names) {
    const std::string path = (std::filesystem::path(directory) / name).string();
    take({.x = path + ".npz"});
    take({.x = path + "_x.npy", .y = path + "_y.npy"});
  }
  return found;
}
ArrayPaths train_files(const std::string& directory) { return find_files(directory, {"train"}); }
ArrayPaths test_files(const std::string& directory) {
  return find_files(directory, {"test", "val"});
}

// The file that has the labels.
const std::string& labels_file(const ArrayPaths& paths) {
  return paths.y.empty() ? paths.x : paths.y;
}

// The classes that labels may have.
struct ArrayClasses {
  std::int64_t count = kMaxArrayId + 1;
  std::string expected = "classes";
};

// Images of few channels that other programs write as [samples, height, width, channels] cannot be
// distinguished from those of many.
std::string channels_line(const ArrayFile& file) {
  const std::vector<std::int64_t>& shape = file.x.shape;
  if (shape.size() != 4 || shape[3] > 4 || shape[1] <= 4 || shape[2] <= 4) return "";
  const auto text = [&](std::size_t dim) { return std::to_string(shape[dim]); };
  return file.path + ": x has the shape [" + text(0) + ", " + text(1) + ", " + text(2) + ", " +
         text(3) + "], read as [samples, channels, height, width]: " + text(1) + " channels of " +
         text(2) + " x " + text(3) + "; if the channels are last, save x.transpose(0, 3, 1, 2)";
}

// Gray images without a dimension of channels have the shape of sequences, but few sequences are
// square or bytes.
std::string gray_line(const ArrayFile& file, bool without_channels) {
  constexpr std::int64_t kFewest = 8;  // rows of an image
  const std::vector<std::int64_t>& shape = file.x.shape;
  if (without_channels || shape.size() != 3 || file.y.shape == shape) return "";
  const bool is_square = shape[1] == shape[2] && shape[1] >= kFewest;
  if (!is_square && file.x.type != DType::kU8) return "";
  const auto text = [&](std::size_t dim) { return std::to_string(shape[dim]); };
  return file.path + ": x has the shape [" + text(0) + ", " + text(1) + ", " + text(2) +
         "], read as [samples, length, features]: " + text(2) + " features at " + text(1) +
         " positions; if these are gray images, save x[:, None], of the shape [" + text(0) +
         ", 1, " + text(1) + ", " + text(2) + "]";
}

// In a column, [samples, 1], there is one label per sample, unless samples have a single position.
// Earlier versions read it as a class for each of one position, and wrote models of these.
bool has_one_label_per_sample(const ArrayFile& file, const DatasetOptions& options) {
  const std::vector<std::int64_t>&of_x = file.x.shape, &of_y = file.y.shape;
  if (of_y.size() != 2 || of_y[1] != 1) return false;
  const bool is_coded = options.coding && !options.coding->inputs_only;
  if (is_coded) return options.coding->like.label_shape().empty();
  return of_x.size() != 3 || of_x[1] != 1;
}

// Integers of two dimensions are token ids, unless a trained model takes numbers.
bool takes_numbers(const DatasetOptions& options) {
  const auto* like = options.coding ? options.coding->like.find<ArraySamples>() : nullptr;
  return like != nullptr && !like->are_tokens;
}

Dataset read_part(const ArrayPaths& paths, const DatasetOptions& options,
                  const ArrayClasses& classes, std::vector<std::string>& warnings) {
  const ArrayFile file = read_array_file(
      paths, options.task == Task::kMultiLabel ? ArrayLabels::kFlags : ArrayLabels::kClasses);
  const std::vector<std::int64_t>& of_y = file.y.shape;
  const bool has_positions = options.task != Task::kMultiLabel && of_y.size() > 1 &&
                             !has_one_label_per_sample(file, options);
  for (const std::string& line : {channels_line(file), gray_line(file, has_positions)})
    if (!line.empty()) warnings.push_back(line);
  Dataset set{.name = options.name,
              .samples = array_samples(file, of_y.size() == 3 && file.x.shape == of_y,
                                       takes_numbers(options))};
  if (options.task == Task::kMultiLabel) {
    set.labels = array_flags(file);
    return set;
  }
  std::vector<std::int32_t> ids =
      array_labels(file, classes.count, has_positions ? options.arrays.ignored_label : std::nullopt,
                   classes.expected);
  if (has_positions)
    set.labels = PositionLabels{
        .extents = {of_y.begin() + 1, of_y.end()}, .ids = std::move(ids), .count = classes.count};
  else
    set.labels = ClassLabels{.ids = std::move(ids), .count = classes.count};
  return set;
}

std::vector<std::int32_t>& ids_of(Dataset& set) {
  auto* positions = set.find<PositionLabels>();
  return positions != nullptr ? positions->ids : set.as<ClassLabels>().ids;
}
void set_classes(Dataset& set, std::int64_t count) {
  if (auto* positions = set.find<PositionLabels>())
    positions->count = count;
  else
    set.as<ClassLabels>().count = count;
}

// A label far above the others may be the mark of positions without one.
std::string gap_line(const std::string& path, Dataset& set, std::int32_t highest) {
  std::int32_t second = -1;
  for (const std::int32_t id : ids_of(set))
    if (id != highest) second = std::max(second, id);
  if (set.find<PositionLabels>() == nullptr || highest - second < 2) return "";
  return path + ": the classes are 0 to " + std::to_string(highest) + ", of which none from " +
         std::to_string(second + 1) + " to " + std::to_string(highest - 1) + " occurs; if " +
         std::to_string(highest) + " marks positions without a label, give --ignore-id " +
         std::to_string(highest);
}

// Numbers the classes of the training part. Returns them.
ArrayClasses learned_classes(const std::string& path, DatasetSplits& splits) {
  const std::vector<std::int32_t>& ids = ids_of(splits.train);
  const std::int32_t highest = *std::ranges::max_element(ids);
  if (highest < 0)
    throw DataError(path + ": every label is the one of --ignore-id, expected classes besides it");
  if (const std::string line = gap_line(path, splits.train, highest); !line.empty())
    splits.warnings.push_back(line);
  set_classes(splits.train, highest + 1);
  return {.count = highest + 1, .expected = "the classes of " + path};
}

void check_scale_of(const Dataset& like, const std::string& path, const Dataset& set,
                    const std::string& source) {
  if (const auto* samples = like.find<ArraySamples>())
    check_scale(path, set.as<ArraySamples>(), *samples, source);
}

void check_alike(const std::string& path, const Dataset& set, const Dataset& like,
                 const std::string& source) {
  if (set.model_shape() == like.model_shape() && set.label_shape() == like.label_shape() &&
      set.labels.index() == like.labels.index() &&
      (set.find<MultiLabels>() == nullptr || set.classes() == like.classes()))
    return;
  throw DataError(path + ": the shapes of x and y differ from those of " + source +
                  " in more than the number of samples");
}

void check_parts(const std::string& path, const DatasetSplits& splits,
                 const std::string& training) {
  check_scale_of(splits.train, path, splits.test, training);
  check_alike(path, splits.test, splits.train, training);
}

}  // namespace

DatasetSplits read_array_splits(const DatasetOptions& options) {
  const ArrayPaths train = train_files(options.directory), test = test_files(options.directory);
  const bool no_test = test.x.empty() && !(options.test_is_optional && !train.x.empty());
  if ((train.x.empty() && options.parts == Parts::kSplit) || no_test) {
    static_cast<void>(list_folder(options.directory));  // reports a folder that does not exist
    throw MissingFileError("no " + std::string(test.x.empty() ? "test" : "train") + ".npz in " +
                           options.directory + ": " + kHow);
  }
  const bool is_coded = options.coding && !options.coding->inputs_only;
  ArrayClasses classes;
  if (is_coded)
    classes = {.count = options.coding->like.classes(),
               .expected = "the classes of the model of " + options.coding->source};
  DatasetSplits splits;
  if (!train.x.empty()) {
    splits.train = read_part(train, options, classes, splits.warnings);
    if (!is_coded && options.task != Task::kMultiLabel)
      classes = learned_classes(labels_file(train), splits);
  }
  std::vector<std::string> repeated;  // they are those of the training part
  if (test.x.empty())
    splits.test = splits.train.like();
  else
    splits.test = read_part(test, options, classes, train.x.empty() ? splits.warnings : repeated);
  if (train.x.empty())
    splits.train = splits.test.like();
  else if (!test.x.empty())
    check_parts(test.x, splits, std::filesystem::path(train.x).filename().string());
  if (options.coding) {
    const std::string source = "the model of " + options.coding->source,
                      &path = test.x.empty() ? train.x : test.x;
    check_scale_of(options.coding->like, path, splits.test, source);
    if (is_coded) check_alike(path, splits.test, options.coding->like, source);
  }
  return splits;
}

std::uint64_t array_splits_bytes(const std::string& directory) {
  std::uint64_t held = 0, most = 0;
  try {
    for (const ArrayPaths& paths : {train_files(directory), test_files(directory)}) {
      std::uint64_t stored = 0;
      for (const std::string& path : {paths.x, paths.y}) {
        if (path.empty()) continue;
        const auto source = open_array_file(path, path == paths.x ? "x" : "y");
        for (const ArrayEntry& entry : source->entries()) {
          if (entry.name != "x" && entry.name != "y") continue;
          stored += entry.bytes;
          held += entry.bytes / size_of(entry.type) * sizeof(float);
        }
      }
      most = std::max(most, held + stored);
    }
  } catch (const Error&) {
    return 0;  // loading reports the reason
  }
  return most;
}

}  // namespace io
