// Checks and reads the four files of an IDX set.
#include "io/data/readers/image_files/idx_files.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include <zlib.h>

#include "io/base/files/io_error.h"
#include "io/base/threads/task_queue.h"
#include "io/data/files/data_file.h"
#include "io/data/files/data_folder.h"

namespace io {
namespace {

constexpr std::uint32_t kImageMagic = 0x803,
                        kLabelMagic = 0x801;  // unsigned bytes, 3 and 1 dimensions
constexpr std::int64_t kIdxSide = 28, kIdxClasses = 10;

std::vector<std::string> class_names(const std::string& set) {
  if (set == "fashion-mnist")
    return {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
            "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
  return {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
}

// Returns the length and CRC-32 of the contents. For a gzip file they are those at its end (RFC
// 1952, 2.3.1); if it has several streams, which is unusual for MNIST, those of the last one.
std::pair<std::uint64_t, std::uint64_t> content_sum(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  const auto* data = reinterpret_cast<const Bytef*>(bytes.data());
  const std::size_t size = bytes.size();
  if (size < 18 || data[0] != 0x1F || data[1] != 0x8B) return {size, crc32_z(0, data, size)};
  const auto word = [&](std::size_t at) {
    return std::uint32_t{data[at]} | std::uint32_t{data[at + 1]} << 8 |
           std::uint32_t{data[at + 2]} << 16 | std::uint32_t{data[at + 3]} << 24;
  };
  return {word(size - 4), word(size - 8)};
}

// Returns all locations in which archives and torchvision place a file: plain, packed, and in a
// folder with its own name.
std::vector<std::string> places_of(const std::string& directory,
                                   const std::array<std::string, 4>& names) {
  namespace fs = std::filesystem;
  std::vector<std::string> found;
  for (const std::string& name : names)
    for (const fs::path& path : {fs::path(directory) / name, fs::path(directory) / name / name}) {
      std::error_code missing;
      const fs::file_status link = fs::symlink_status(path, missing);
      if (fs::is_symlink(link) && !fs::exists(path, missing))
        throw DataError(path.string() + ": a link to " + fs::read_symlink(path, missing).string() +
                        ", which is not there");
      if (fs::exists(path, missing) && !fs::is_directory(path, missing))
        found.push_back(path.string());
    }
  return found;
}

// Returns the subfolder that contains the set if the folder itself does not, for a hint.
std::string folder_with(const std::string& directory, const std::array<std::string, 4>& names) {
  namespace fs = std::filesystem;
  std::error_code failure;
  for (fs::recursive_directory_iterator it(directory, failure), end; !failure && it != end;
       it.increment(failure)) {
    if (it.depth() >= 2) it.disable_recursion_pending();
    const std::string name = it->path().filename().string();
    if (std::ranges::find(names, name) == names.end()) continue;
    std::error_code unknown;
    if (it->is_regular_file(unknown)) return it->path().parent_path().string();
  }
  return "";
}

// Returns a hint if MNIST exists as tables, as on Kaggle.
std::string table_hint(const std::string& directory) {
  std::error_code unknown;
  if (!std::filesystem::is_directory(directory, unknown)) return "";
  for (const FolderEntry& entry : list_folder(directory))
    if (entry.name.ends_with(".csv"))
      return "; " + entry.name +
             " there is a table: --dataset csv --label-column label --annotations " + entry.path +
             " reads it";
  return "";
}

// E.g. stem "train-images", suffix "idx3-ubyte".
std::string find_idx(const std::string& set, const std::string& directory, const std::string& stem,
                     const std::string& suffix) {
  const std::array<std::string, 4> names = {stem + "-" + suffix, stem + "." + suffix,
                                            stem + "-" + suffix + ".gz",
                                            stem + "." + suffix + ".gz"};
  const std::vector<std::string> found = places_of(directory, names);
  if (found.empty()) {
    for (const std::string& name : names)
      if (const auto path = std::filesystem::path(directory) / name;
          std::filesystem::exists(path))  // a folder: opening it reports the error
        return path.string();
    if (const std::string other = folder_with(directory, names); !other.empty())
      throw MissingFileError("no " + stem + " of " + set + " in " + directory + ", but in " +
                             other + ": name that folder with --data-dir");
    throw_missing(stem, directory,
                  names[0] + " and " + names[1] + ", plain or .gz" + table_hint(directory), set);
  }
  for (std::size_t i = 1; i < found.size(); ++i)
    if (content_sum(found[i]) != content_sum(found[0]))
      throw DataError("found both " + found[0] + " and " + found[i] +
                      ", which differ: expected one of them; remove or rename the other");
  return found[0];
}

DataFile open_idx(const std::string& set, const std::string& directory, const std::string& stem,
                  const std::string& suffix) {
  return DataFile(find_idx(set, directory, stem, suffix));
}

// Reads big-endian words.
template <std::size_t kCount>
std::array<std::uint32_t, kCount> read_header(DataFile& file) {
  std::array<std::uint8_t, 4 * kCount> bytes;
  const std::size_t got = file.read(bytes);
  if (got < bytes.size()) {
    throw DataError(file.path() + ": truncated: found " + std::to_string(got) +
                    " bytes, expected a header of " + std::to_string(bytes.size()));
  }
  std::array<std::uint32_t, kCount> words{};
  for (std::size_t i = 0; i < bytes.size(); ++i) words[i / 4] = words[i / 4] << 8 | bytes[i];
  return words;
}

void check_magic(const DataFile& file, std::uint32_t found, std::uint32_t expected,
                 const char* kind) {
  if (found == expected) return;
  throw DataError(file.path() + ": wrong magic number: found " + std::to_string(found) +
                  ", expected " + std::to_string(expected) + " (IDX " + kind + ")");
}

// Reads the rest of the file, which must be `count` items of `item_bytes` bytes.
std::vector<std::uint8_t> read_items(DataFile& file, std::uint64_t count, std::uint64_t item_bytes,
                                     const char* kind) {
  if (count == 0) throw DataError(file.path() + ": found 0 " + kind + ", expected at least 1");
  const std::uint64_t expected = count * item_bytes;
  file.check_unpacked(expected);
  std::vector<std::uint8_t> bytes = file.read_up_to(expected);
  const std::string rest = " after the header, expected " + std::to_string(expected) + " (" +
                           std::to_string(count) + " " + kind + " of " +
                           std::to_string(item_bytes) + ")";
  if (bytes.size() < expected) {
    throw DataError(file.path() + ": truncated: found " + std::to_string(bytes.size()) + " bytes" +
                    rest);
  }
  if (const std::uint64_t more = file.skip_to_end(); more > 0) {
    throw DataError(file.path() + ": trailing bytes: found " + std::to_string(expected + more) +
                    " bytes" + rest);
  }
  return bytes;
}

Dataset read_idx_split(const std::string& set, const std::string& directory,
                       const std::string& prefix) {
  DataFile image_file = open_idx(set, directory, prefix + "-images", "idx3-ubyte");
  const auto [image_magic, image_count, rows, columns] = read_header<4>(image_file);
  check_magic(image_file, image_magic, kImageMagic, "images");
  if (rows != kIdxSide || columns != kIdxSide) {
    throw DataError(image_file.path() + ": wrong image size: found " + std::to_string(rows) +
                    " x " + std::to_string(columns) + ", expected " + std::to_string(kIdxSide) +
                    " x " + std::to_string(kIdxSide));
  }
  DataFile label_file = open_idx(set, directory, prefix + "-labels", "idx1-ubyte");
  const auto [label_magic, label_count] = read_header<2>(label_file);
  check_magic(label_file, label_magic, kLabelMagic, "labels");
  if (image_count != label_count) {
    throw DataError(label_file.path() + ": found " + std::to_string(label_count) +
                    " labels, expected " + std::to_string(image_count) +
                    ", one for each image of " + image_file.path());
  }

  const std::vector<std::uint8_t> labels = read_items(label_file, label_count, 1, "labels");
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < kIdxClasses) continue;
    throw DataError(label_file.path() + ": label out of range at position " + std::to_string(i) +
                    ": found " + std::to_string(labels[i]) + ", expected 0.." +
                    std::to_string(kIdxClasses - 1));
  }
  return {
      .name = set,
      .samples = ImageSamples{.format = {.shape = {kIdxSide, kIdxSide, 1}},
                              .pixels = read_items(image_file, image_count, kIdxSide * kIdxSide,
                                                   "images")},
      .labels = ClassLabels{
          .ids = {labels.begin(), labels.end()}, .count = kIdxClasses, .names = class_names(set)}};
}

}  // namespace

std::vector<std::string> find_idx_images(const std::string& name, const std::string& directory) {
  return {find_idx(name, directory, "train-images", "idx3-ubyte"),
          find_idx(name, directory, "t10k-images", "idx3-ubyte")};
}

DatasetSplits read_idx_splits(const std::string& name, const std::string& directory, Parts parts,
                              bool test_is_optional) {
  DatasetSplits splits;
  base::TaskQueue beside;  // unpacking dominates the time
  beside.add([&] { splits.test = read_idx_split(name, directory, "t10k"); });
  try {
    splits.train = read_idx_split(name, directory, "train");
  } catch (const MissingFileError&) {
    if (parts == Parts::kSplit) throw;
  }
  try {
    beside.finish();
  } catch (const MissingFileError&) {
    if (!test_is_optional || splits.train.size() == 0) throw;
    splits.test = splits.train.like();
  }
  return splits;
}

}  // namespace io
