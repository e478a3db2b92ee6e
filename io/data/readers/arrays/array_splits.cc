// Finds the files, and numbers their classes alike.
#include "io/data/readers/arrays/array_splits.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/data/dataset/sample_coding.h"
#include "io/data/readers/arrays/array_file.h"
#include "io/interchange/array_files.h"

namespace io {
namespace {

constexpr const char* kHow = "expected train.npz and test.npz with the arrays x and y";

// "": there is none.
std::string find_file(const std::string& directory, const std::vector<std::string>& names) {
  std::string found;
  for (const std::string& name : names) {
    const std::string path = (std::filesystem::path(directory) / (name + ".npz")).string();
    if (!std::filesystem::exists(path)) continue;
    if (!found.empty())
      throw DataError("found " + found + " and " + path + ", expected one of them");
    found = path;
  }
  return found;
}
std::string train_file(const std::string& directory) { return find_file(directory, {"train"}); }
std::string test_file(const std::string& directory) {
  return find_file(directory, {"test", "val"});
}

// The classes that labels may have.
struct ArrayClasses {
  std::int64_t count = kMaxArrayId + 1;
  std::string expected = "classes";
};

Dataset read_part(const std::string& path, const DatasetOptions& options,
                  const ArrayClasses& classes) {
  const ArrayFile file = read_array_file(path, true);
  const std::vector<std::int64_t>& of_y = file.y.shape;
  Dataset set{.name = options.name,
              .samples = array_samples(file, of_y.size() == 3 && file.x.shape == of_y)};
  const bool by_position = of_y.size() > 1;
  std::vector<std::int32_t> ids =
      array_labels(file, classes.count, by_position ? options.arrays.ignored_label : std::nullopt,
                   classes.expected);
  if (by_position)
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

void check_alike(const std::string& path, const Dataset& set, const Dataset& like,
                 const std::string& source) {
  if (set.model_shape() == like.model_shape() && set.label_shape() == like.label_shape() &&
      set.labels.index() == like.labels.index())
    return;
  throw DataError(path + ": the shapes of x and y differ from those of " + source +
                  " in more than the number of samples");
}

}  // namespace

DatasetSplits read_array_splits(const DatasetOptions& options) {
  const std::string train = train_file(options.directory), test = test_file(options.directory);
  if ((train.empty() && options.parts == Parts::kSplit) || test.empty())
    throw MissingFileError("no " + std::string(test.empty() ? "test" : "train") + ".npz in " +
                           options.directory + ": " + kHow);
  const bool is_coded = options.coding && !options.coding->inputs_only;
  ArrayClasses classes;
  if (is_coded)
    classes = {.count = options.coding->like.classes(),
               .expected = "the classes of the model of " + options.coding->source};
  DatasetSplits splits;
  if (!train.empty()) {
    splits.train = read_part(train, options, classes);
    if (!is_coded) classes = learned_classes(train, splits);
  }
  splits.test = read_part(test, options, classes);
  if (train.empty())
    splits.train = splits.test.like();
  else
    check_alike(test, splits.test, splits.train, "train.npz");
  if (is_coded)
    check_alike(test, splits.test, options.coding->like, "the model of " + options.coding->source);
  return splits;
}

std::uint64_t array_splits_bytes(const std::string& directory) {
  std::uint64_t held = 0, most = 0;
  try {
    for (const std::string& path : {train_file(directory), test_file(directory)}) {
      if (path.empty()) continue;
      const std::unique_ptr<ArraySource> source = open_arrays(path);
      std::uint64_t stored = 0;
      for (const ArrayEntry& entry : source->entries()) {
        if (entry.name != "x" && entry.name != "y") continue;
        stored += entry.bytes;
        held += entry.bytes / size_of(entry.type) * sizeof(float);
      }
      most = std::max(most, held + stored);
    }
  } catch (const Error&) {
    return 0;  // loading reports the reason
  }
  return most;
}

}  // namespace io
