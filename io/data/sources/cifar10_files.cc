// Finds, checks and reads the batch files.
#include "io/data/sources/cifar10_files.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string_view>
#include <vector>

#include "io/base/io_error.h"
#include "io/data/sources/data_file.h"

namespace io {
namespace {

constexpr std::size_t kCifarSide = 32, kPlane = kCifarSide * kCifarSide, kChannels = 3,
                      kRecord = 1 + kChannels * kPlane;
constexpr std::uint8_t kCifarClasses = 10;
constexpr const char* kSet = "cifar10";

// Paths of PREFIX*.bin, shorter names first: 2 before 10.
std::vector<std::string> find_batches(const std::string& directory, const std::string& prefix,
                                      const char* what) {
  std::vector<std::string> found;
  for (const auto& entry : entries_of(directory)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    if (name.ends_with(".bin")) found.push_back(entry.path().string());
    if (!name.ends_with(".bin.xz")) continue;
    std::filesystem::path unpacked = entry.path();
    unpacked.replace_extension();
    if (std::filesystem::exists(unpacked)) continue;
    throw MissingFileError(unpacked.string() + " is missing, but " + name +
                           " lies beside it: unpack it with `xz -dk " + entry.path().string() +
                           "`, or run `tools/scripts/get_data.sh " + kSet + " --dir DIR`");
  }
  if (found.empty()) throw_missing(what, directory, prefix + "*.bin", kSet);
  std::sort(found.begin(), found.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  return found;
}

// Planes of red, green and blue to pixels of three bytes.
void interleave(const std::uint8_t* planes, std::uint8_t* pixels) {
  for (std::size_t i = 0; i < kPlane; ++i) {
    for (std::size_t c = 0; c < kChannels; ++c) pixels[kChannels * i + c] = planes[c * kPlane + i];
  }
}

void append_batch(const std::string& path, Dataset& split) {
  DataFile file(path);
  const std::vector<std::uint8_t> bytes =
      file.read_up_to(std::numeric_limits<std::uint64_t>::max());
  const std::size_t records = bytes.size() / kRecord, rest = bytes.size() % kRecord;
  if (records == 0 || rest != 0) {
    throw DataError(path + ": truncated or not CIFAR-10: found " + std::to_string(bytes.size()) +
                    " bytes (" + std::to_string(records) + " records and " + std::to_string(rest) +
                    " bytes), expected a whole number of records of " + std::to_string(kRecord));
  }
  const std::size_t before = split.labels.size();
  split.samples.resize((before + records) * kChannels * kPlane);
  split.labels.reserve(before + records);
  for (std::size_t i = 0; i < records; ++i) {
    const std::uint8_t* record = &bytes[i * kRecord];
    if (record[0] >= kCifarClasses) {
      throw DataError(path + ": label out of range at record " + std::to_string(i) + ": found " +
                      std::to_string(record[0]) + ", expected 0.." +
                      std::to_string(kCifarClasses - 1));
    }
    split.labels.push_back(record[0]);
    interleave(record + 1, &split.samples[(before + i) * kChannels * kPlane]);
  }
}

Dataset read_cifar10_split(const std::string& directory, const std::string& prefix,
                           const char* what) {
  Dataset split;
  split.name = kSet;
  split.shape = {kCifarSide, kCifarSide, kChannels};
  split.classes = kCifarClasses;
  split.class_names = {"airplane", "automobile", "bird",  "cat",  "deer",
                       "dog",      "frog",       "horse", "ship", "truck"};
  const std::vector<std::string> paths = find_batches(directory, prefix, what);
  std::uint64_t bytes = 0;
  std::error_code ignored;
  for (const std::string& path : paths)
    if (const auto size = std::filesystem::file_size(path, ignored); !ignored) bytes += size;
  split.samples.reserve(bytes);  // else growing has all of them in memory twice
  for (const std::string& path : paths) append_batch(path, split);
  return split;
}

}  // namespace

DatasetSplits read_cifar10_splits(const std::string& directory) {
  DatasetSplits splits;
  splits.train = read_cifar10_split(directory, "data_batch_", "training batches");
  splits.test = read_cifar10_split(directory, "test_batch", "test batches");
  return splits;
}

}  // namespace io
