// Finds the images of a folder and reads them on demand.
#include "io/data/sources/images/image_folder.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <utility>

#include "io/base/io_error.h"
#include "io/data/sources/data_file.h"
#include "io/data/sources/image_source.h"
#include "io/data/sources/images/augmentation.h"
#include "io/data/sources/images/image_decoder.h"
#include "io/data/sources/images/resample.h"

namespace io {
namespace {

namespace fs = std::filesystem;

// One part's files and, where they fit, their pixels.
class FolderImages : public ImageSource {
 public:
  FolderImages(std::vector<std::string> paths, std::int64_t size, std::int64_t cache_bytes)
      : paths_(std::move(paths)), size_(size), bytes_(static_cast<std::size_t>(3 * size * size)) {
    if (static_cast<std::int64_t>(paths_.size()) > cache_bytes / (3 * size * size)) return;
    pixels_.reset(
        new std::uint8_t[paths_.size() * bytes_]);  // not zeroed: memory is taken as it fills
    states_ = std::vector<std::atomic<int>>(paths_.size());
  }

  void read(std::int64_t id, SplitMix* crop, std::span<std::uint8_t> out) const override {
    const auto i = static_cast<std::size_t>(id);
    if (crop != nullptr || !pixels_) return decode(paths_[i], crop, out);
    std::uint8_t* kept = pixels_.get() + i * bytes_;
    if (states_[i].load(std::memory_order_acquire) == kKept) {
      std::memcpy(out.data(), kept, bytes_);
      return;
    }
    decode(paths_[i], nullptr, out);
    int state = kAbsent;  // two workers may be at the same image at the end of an epoch: one of
                          // them keeps it
    if (!states_[i].compare_exchange_strong(state, kBeingKept, std::memory_order_relaxed)) return;
    std::memcpy(kept, out.data(), bytes_);
    states_[i].store(kKept, std::memory_order_release);
  }

  // CLASS/NAME and the size of each file: where the folder lies does not matter.
  void add_to(base::StreamDigest& digest) const override {
    for (const std::string& path : paths_) {
      std::error_code unknown;
      const fs::path file(path);
      const std::string line = (file.parent_path().filename() / file.filename()).string() + " " +
                               std::to_string(fs::file_size(file, unknown)) + "\n";
      digest.add(std::as_bytes(std::span(line)));
    }
  }

 private:
  enum State : int { kAbsent, kBeingKept, kKept };

  void decode(const std::string& path, SplitMix* crop, std::span<std::uint8_t> out) const {
    const std::vector<std::uint8_t> file =
        DataFile(path).read_up_to(std::numeric_limits<std::uint64_t>::max());
    const DecodedImage image = decode_image(file, path);
    if (crop == nullptr) return resize_and_crop(image, size_, out);
    const ResizedCrop part = draw_resized_crop(image.height, image.width, *crop);
    resample(image, {part.left, part.top, part.width, part.height}, size_, size_,
             {0, 0, size_, size_}, out);
  }

  std::vector<std::string> paths_;
  std::int64_t size_;
  std::size_t bytes_;
  std::unique_ptr<std::uint8_t[]> pixels_;
  mutable std::vector<std::atomic<int>> states_;
};

bool has_ending(const std::string& name, std::string_view ending) {
  return name.size() > ending.size() &&
         std::equal(ending.rbegin(), ending.rend(), name.rbegin(), [](char a, char b) {
           return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b + ('a' - 'A')) : b);
         });
}

bool is_image(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  const bool png = has_ending(name, ".png"),
             jpeg = has_ending(name, ".jpg") || has_ending(name, ".jpeg");
  if (name.starts_with('.') || (!png && !jpeg) || entry.is_directory()) return false;
  // A link to a disk that is not mounted must not make a training of fewer images.
  if (!entry.exists())
    throw DataError(entry.path().string() + ": a link to " +
                    fs::read_symlink(entry.path()).string() + ", which is not there");
  if (!entry.is_regular_file())
    throw DataError(entry.path().string() + ": a device or a pipe, expected an image file");
  if ((png && !has_png_decoder()) || (jpeg && !has_jpeg_decoder())) {
    throw ConfigError(entry.path().string() + ": this build reads no " + (png ? "PNG" : "JPEG") +
                      " images: install " + (png ? "libpng-dev" : "libjpeg62-turbo-dev") +
                      " and build again");
  }
  return true;
}

// Names of the folders in `directory`, in byte order.
std::vector<std::string> class_folders(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : entries_of(directory.string())) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() && !name.starts_with('.')) names.push_back(name);
    if (is_image(entry))
      throw DataError(entry.path().string() + ": an image in no folder of a class, expected " +
                      directory.string() + "/CLASS/" + name);
  }
  if (names.empty())
    throw MissingFileError("no folders of classes in " + directory.string() + ": expected " +
                           directory.string() +
                           "/CLASS/*.png or *.jpg; name the folder above with --data-dir");
  std::sort(names.begin(), names.end());
  return names;
}

Dataset read_part(const DatasetOptions& options, const fs::path& directory,
                  const std::vector<std::string>& classes) {
  Dataset part;
  part.name = options.name;
  part.shape = {options.image_size, options.image_size, 3};
  part.classes = static_cast<std::int64_t>(classes.size());
  part.class_names = classes;
  part.mean = {0.485f, 0.456f, 0.406f};
  part.deviation = {0.229f, 0.224f, 0.225f};
  part.scaled = true;
  std::vector<std::string> paths;
  for (const std::string& name : class_folders(directory)) {
    const auto label = std::lower_bound(classes.begin(), classes.end(), name);
    if (label == classes.end() || *label != name)
      throw DataError((directory / name).string() +
                      ": a class that is not in training: there is no " + options.directory +
                      "/train/" + name);
    for (std::string& path : images_below((directory / name).string())) {
      paths.push_back(std::move(path));
      part.labels.push_back(static_cast<std::int32_t>(label - classes.begin()));
    }
  }
  part.source = std::make_shared<FolderImages>(std::move(paths), options.image_size,
                                               options.image_cache_bytes);
  return part;
}

DatasetSplits read_parts(const DatasetOptions& options) {
  if (options.image_size < 1 || options.image_size > 4096)
    throw ConfigError("images of size " + std::to_string(options.image_size) +
                      ": expected 1..4096");
  const fs::path directory(options.directory);
  const std::vector<std::string> classes = class_folders(directory / "train");
  if (!fs::is_directory(directory / "val") && !fs::is_directory(directory / "test"))
    throw MissingFileError("neither " + (directory / "val").string() + " nor " +
                           (directory / "test").string() +
                           " is there: one of them has the images for testing");
  return {read_part(options, directory / "train", classes),
          read_part(options, directory / (fs::is_directory(directory / "val") ? "val" : "test"),
                    classes)};
}

}  // namespace

bool is_image_name(const std::string& name) {
  return has_ending(name, ".png") || has_ending(name, ".jpg") || has_ending(name, ".jpeg");
}

std::vector<std::string> images_below(const std::string& folder) try {
  std::vector<std::string> paths;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (is_image(entry)) paths.push_back(entry.path().string());
  }
  if (paths.empty()) throw DataError(folder + ": found no image, expected *.png, *.jpg or *.jpeg");
  std::sort(paths.begin(), paths.end());
  return paths;
} catch (const fs::filesystem_error& error) {
  throw MissingFileError(error.path1().string() + ": cannot be read: " + error.code().message());
}

DatasetSplits read_image_folder_splits(const DatasetOptions& options) {
  try {
    return read_parts(options);
  } catch (const fs::filesystem_error& error) {
    throw MissingFileError(error.path1().string() + ": cannot be read: " + error.code().message());
  }
}

}  // namespace io
