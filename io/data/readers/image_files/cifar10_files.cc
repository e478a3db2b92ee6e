// Finds, checks and reads the batch files.
#include "io/data/readers/image_files/cifar10_files.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/data/files/data_file.h"
#include "io/data/files/data_folder.h"

namespace io {
namespace {

constexpr std::size_t kCifarSide = 32, kPlane = kCifarSide * kCifarSide, kChannels = 3,
                      kRecord = 1 + kChannels * kPlane;
constexpr std::uint8_t kCifarClasses = 10;
constexpr const char* kSet = "cifar10";

void check_unpacked(const FolderEntry& entry) {
  if (!entry.name.ends_with(".bin.xz")) return;
  std::filesystem::path unpacked = entry.path;
  unpacked.replace_extension();
  if (std::filesystem::exists(unpacked)) return;
  throw MissingFileError(unpacked.string() + " is missing, but " + entry.name +
                         " lies beside it: unpack it with `xz -dk " + entry.path +
                         "`, or run `tools/scripts/get_data.sh " + kSet + " --dir DIR`");
}

// Returns the paths of PREFIX*.bin, shorter names first: 2 before 10.
std::vector<std::string> find_batches(const std::string& directory, const std::string& prefix,
                                      const char* what) {
  const std::string looked_for = prefix + "*.bin";
  if (std::error_code unknown; !std::filesystem::exists(directory, unknown))
    throw_missing(what, directory, looked_for, kSet);
  for (const FolderEntry& entry : list_folder(directory))
    if (entry.name.starts_with(prefix)) check_unpacked(entry);
  LeftOut ignored;  // left_out_line() counts them
  std::vector<std::string> found = pick_files(
      directory,
      [&](const std::string& name) { return is_cifar10_name(name) && name.starts_with(prefix); },
      ignored);
  if (found.empty()) {
    const std::filesystem::path below = std::filesystem::path(directory) / "cifar-10-batches-bin";
    if (std::error_code unknown; std::filesystem::is_directory(below, unknown))  // from the archive
      throw MissingFileError("no " + looked_for + " in " + directory + ", but a folder " +
                             below.filename().string() + ": name that with --data-dir " +
                             below.string());
    throw_missing(what, directory, looked_for, kSet);
  }
  std::ranges::stable_sort(found, {}, &std::string::size);
  return found;
}

// Returns a line for the user about files that do not belong to the set, or "".
std::string left_out_line(const std::string& directory) {
  LeftOut left_out;
  for (const FolderEntry& entry : list_folder(directory))
    if (!is_cifar10_name(entry.name) && !entry.name.ends_with(".bin.xz") &&
        entry.name != "batches.meta.txt" && entry.name != "readme.html")  // from the archive
      left_out.add(entry);
  return left_out.line(directory, "batches are data_batch_*.bin and test_batch*.bin");
}

// Converts planes of red, green and blue to pixels of three bytes.
void interleave(const std::uint8_t* planes, std::uint8_t* pixels) {
  for (std::size_t i = 0; i < kPlane; ++i) {
    for (std::size_t c = 0; c < kChannels; ++c) pixels[kChannels * i + c] = planes[c * kPlane + i];
  }
}

void append_batch(const std::string& path, std::vector<std::uint8_t>& pixels,
                  std::vector<std::int32_t>& labels) {
  DataFile file(path);
  const std::vector<std::uint8_t> bytes =
      file.read_up_to(std::numeric_limits<std::uint64_t>::max());
  const std::size_t records = bytes.size() / kRecord, rest = bytes.size() % kRecord;
  if (records == 0 || rest != 0) {
    throw DataError(path + ": truncated or not CIFAR-10: found " + std::to_string(bytes.size()) +
                    " bytes (" + std::to_string(records) + " records and " + std::to_string(rest) +
                    " bytes), expected a whole number of records of " + std::to_string(kRecord));
  }
  const std::size_t before = labels.size();
  pixels.resize((before + records) * kChannels * kPlane);
  labels.reserve(before + records);
  for (std::size_t i = 0; i < records; ++i) {
    const std::uint8_t* record = &bytes[i * kRecord];
    if (record[0] >= kCifarClasses) {
      throw DataError(path + ": label out of range at record " + std::to_string(i) + ": found " +
                      std::to_string(record[0]) + ", expected 0.." +
                      std::to_string(kCifarClasses - 1));
    }
    labels.push_back(record[0]);
    interleave(record + 1, &pixels[(before + i) * kChannels * kPlane]);
  }
}

Dataset read_cifar10_split(const std::string& directory, const std::string& prefix,
                           const char* what) {
  ImageSamples images{.format = {.shape = {kCifarSide, kCifarSide, kChannels}}};
  ClassLabels labels{.count = kCifarClasses,
                     .names = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog",
                               "horse", "ship", "truck"}};
  const std::vector<std::string> paths = find_batches(directory, prefix, what);
  std::uint64_t bytes = 0;
  std::error_code ignored;
  for (const std::string& path : paths)
    if (const auto size = std::filesystem::file_size(path, ignored); !ignored) bytes += size;
  images.pixels.reserve(bytes);  // otherwise growing would copy all of them
  for (const std::string& path : paths) append_batch(path, images.pixels, labels.ids);
  return {.name = kSet, .samples = std::move(images), .labels = std::move(labels)};
}

}  // namespace

bool is_cifar10_name(const std::string& name) {
  return name.ends_with(".bin") &&
         (name.starts_with("data_batch_") || name.starts_with("test_batch"));
}

DatasetSplits read_cifar10_splits(const std::string& directory, Parts parts,
                                  bool test_is_optional) {
  DatasetSplits splits;
  try {
    splits.train = read_cifar10_split(directory, "data_batch_", "training batches");
  } catch (const MissingFileError&) {
    if (parts == Parts::kSplit) throw;
  }
  try {
    splits.test = read_cifar10_split(directory, "test_batch", "test batches");
  } catch (const MissingFileError&) {
    if (!test_is_optional || splits.train.size() == 0) throw;
    splits.test = splits.train.like();
  }
  if (std::string line = left_out_line(directory); !line.empty())
    splits.warnings.push_back(std::move(line));
  return splits;
}

}  // namespace io
