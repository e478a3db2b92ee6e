// Prefers val for testing, unless the options name a part.
#include "io/data/readers/image_files/image_parts.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/base/text/text_parts.h"
#include "io/data/files/data_folder.h"

namespace io {
namespace {

namespace fs = std::filesystem;

bool has_folder(const std::string& directory, const char* name) {
  std::error_code unknown;
  return fs::is_directory(fs::path(directory) / name, unknown);
}

// Returns the first existing one of these folders.
fs::path part_folder(const fs::path& directory, const std::vector<std::string>& names,
                     const std::string& expected) {
  for (const std::string& name : names) {
    const fs::path path = directory / name;
    std::error_code unknown;
    if (fs::is_directory(path, unknown)) return path;
    for (const FolderEntry& entry : list_folder(directory.string()))
      if (entry.name == name) check_usable(entry, "a folder");
  }
  static_cast<void>(list_folder(directory.string()));  // if the folder does not exist, this reports
                                                       // it
  throw MissingFileError("no folder " + base::join_text(names, " or ") + " in " +
                         directory.string() + ": expected " + expected +
                         "; name the folder above with --data-dir");
}

}  // namespace

bool is_divided(const std::string& directory) {
  return has_folder(directory, "train") || has_folder(directory, "val") ||
         has_folder(directory, "test");
}

std::string training_folder(const std::string& directory) {
  return part_folder(directory, {"train"}, directory + "/train/CLASS/*.png or *.jpg").string();
}

std::string testing_folder(const DatasetOptions& options, DatasetSplits& splits) {
  const fs::path above(options.directory);
  std::vector<std::string> names{"val", "test"};
  if (options.test_part == "test") std::ranges::reverse(names);
  const bool has_test =
      has_folder(options.directory, "val") || has_folder(options.directory, "test");
  if (options.test_is_optional && !has_test && has_folder(options.directory, "train")) return "";
  if (options.test_part.empty() && has_folder(options.directory, "val") &&
      has_folder(options.directory, "test")) {
    splits.test_part = "val";
    splits.warnings.push_back(two_parts_line(options.directory));
  }
  return part_folder(above, names,
                     (above / "val").string() + " or " + (above / "test").string() +
                         " with images for testing")
      .string();
}

}  // namespace io
