// Reads the table of each part, and finds its images.
#include "io/data/readers/image_files/labelled_images.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"
#include "io/data/dataset/sample_coding.h"
#include "io/data/files/data_folder.h"
#include "io/data/readers/csv/csv_columns.h"
#include "io/data/readers/image_files/image_folder.h"
#include "io/data/readers/image_files/image_parts.h"
#include "io/data/tables/csv_header.h"
#include "io/data/tables/csv_separator.h"
#include "io/data/tables/csv_table.h"
#include "io/data/tables/csv_text.h"

namespace io {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTable = "labels.csv";

// A table without a header has an image in row 1.
void check_header(const CsvTable& table) {
  const std::string_view first = table.field(0, 0);
  if (!is_image_name(std::string(first))) return;
  throw DataError(table.place(0) + ": found the image '" + base::escape_text(first) +
                  "', expected the names of the columns: file, then a name for each label");
}

CsvTable read_table(const fs::path& folder) {
  const std::string path = (folder / kTable).string();
  if (!fs::exists(path)) {
    static_cast<void>(list_folder(folder.string()));  // reports a folder that does not exist
    throw MissingFileError("no " + path +
                           ": --task multi-label expects a table with a row for each image: its "
                           "file, then a column of 0 and 1 for each label");
  }
  std::vector<std::uint8_t> bytes = CsvText(path).rest();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const char separator = csv_separator("auto", text);
  CsvTable table(std::move(bytes), path, separator);
  if (table.columns() < 2 || table.rows() < 2)
    throw DataError(path + ": found " + std::to_string(table.columns()) + " columns and " +
                    std::to_string(table.rows()) +
                    " rows, expected the names of labels in row 1, then a row for each image");
  check_header(table);
  return table;
}

// Returns a name for each label. A warning names those that are changed, as in other tables.
std::vector<std::string> names_of_labels(const CsvTable& table,
                                         std::vector<std::string>& warnings) {
  std::vector<std::string> given;
  for (std::size_t column = 0; column < table.columns(); ++column)
    given.emplace_back(table.field(0, column));
  std::vector<std::string> names = unique_names(given);
  for (std::size_t column = 1; column < names.size(); ++column)
    if (names[column] != given[column])
      warnings.push_back(table.name() + ": column " + std::to_string(column + 1) +
                         (given[column].empty() ? " has no name"
                                                : " is the second one called '" +
                                                      base::escape_text(given[column]) + "'") +
                         " and becomes '" + base::escape_text(names[column]) + "'");
  names.erase(names.begin());
  return names;
}

MultiLabels read_labels_of(const CsvTable& table, std::vector<std::string>& warnings) {
  MultiLabels labels{.names = names_of_labels(table, warnings)};
  const CsvMissing missing;
  for (std::size_t row = 1; row < table.rows(); ++row)
    for (std::size_t column = 1; column < table.columns(); ++column)
      labels.values.push_back(read_flag(table, column, row, missing, labels.names[column - 1]));
  return labels;
}

// Returns the files that the table names, from those found in the folder.
std::vector<std::string> files_of(const CsvTable& table, const fs::path& folder,
                                  const std::vector<std::string>& found) {
  std::unordered_map<std::string, std::size_t> rows;  // 0: not named so far
  for (const std::string& path : found) rows.emplace(fs::path(path).lexically_normal().string(), 0);
  std::vector<std::string> files;
  for (std::size_t row = 1; row < table.rows(); ++row) {
    const std::string name(table.field(row, 0));
    const auto at = rows.find((folder / name).lexically_normal().string());
    if (at == rows.end())
      throw DataError(table.place(row) + ": found no image '" + base::escape_text(name) + "' in " +
                      folder.string() + ", expected *.png, *.jpg or *.jpeg");
    if (at->second > 0)
      throw DataError(table.place(row) + ": '" + base::escape_text(name) + "' is named in row " +
                      std::to_string(at->second) + " as well");
    at->second = row + 1;
    files.push_back(at->first);
  }
  return files;
}

Dataset read_part(const DatasetOptions& options, const fs::path& folder,
                  std::vector<std::string>& warnings) {
  const CsvTable table = read_table(folder);
  LeftOut left_out;
  std::vector<std::string> found = pick_files_below(
      folder.string(),
      [](const std::string& name) { return is_image_name(name) || name == kTable; }, left_out);
  std::erase_if(found, [](const std::string& path) { return !is_image_name(path); });
  std::vector<std::string> files = files_of(table, folder, found);
  for (const std::string& path : files) check_decoder(path);
  if (found.size() > files.size())
    warnings.push_back(folder.string() + ": left out " +
                       std::to_string(found.size() - files.size()) + " images that " + kTable +
                       " does not name");
  return {.name = options.name,
          .samples = images_of_files(std::move(files), options.images),
          .labels = read_labels_of(table, warnings)};
}

void check_names(const fs::path& folder, const Dataset& set, const MultiLabels& like,
                 const std::string& source) {
  const auto& names = set.as<MultiLabels>().names;
  if (names == like.names) return;
  throw DataError((folder / kTable).string() + ": found the labels " + base::join_text(names) +
                  ", expected those of " + source + ": " + base::join_text(like.names));
}

}  // namespace

DatasetSplits read_labelled_splits(const DatasetOptions& options) {
  const fs::path directory(options.directory);
  const bool held_out = options.parts == Parts::kHoldOut;
  const bool in_parts = !held_out || is_divided(options.directory);
  DatasetSplits splits;
  fs::path training;
  if (!held_out || fs::is_directory(directory / "train")) {
    training = training_folder(options.directory);
    splits.train = read_part(options, training, splits.warnings);
  }
  const fs::path testing = in_parts ? fs::path(testing_folder(options, splits)) : directory;
  if (testing.empty()) {
    splits.test = splits.train.like();
    return splits;
  }
  splits.test = read_part(options, testing, splits.warnings);
  if (!training.empty())
    check_names(testing, splits.test, splits.train.as<MultiLabels>(), (training / kTable).string());
  const bool is_coded = options.coding && !options.coding->inputs_only;
  const auto* like = is_coded ? options.coding->like.find<MultiLabels>() : nullptr;
  if (like != nullptr)
    check_names(testing, splits.test, *like, "the model of " + options.coding->source);
  return splits;
}

}  // namespace io
