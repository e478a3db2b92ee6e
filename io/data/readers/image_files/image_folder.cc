// Finds the images of a folder and reads them on demand.
#include "io/data/readers/image_files/image_folder.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "io/base/files/io_error.h"
#include "io/base/text/text_parts.h"
#include "io/data/files/data_folder.h"
#include "io/data/images/augmentation.h"
#include "io/data/images/image_decoder.h"
#include "io/data/images/image_extent.h"
#include "io/data/images/image_source.h"
#include "io/data/images/resample.h"
#include "io/data/readers/image_files/image_parts.h"

namespace io {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTakenImages = "images are *.png, *.jpg and *.jpeg";

// The files of one part and, if they fit, their pixels.
class FolderImages : public ImageSource {
 public:
  FolderImages(std::vector<std::string> paths, std::int64_t size, std::int64_t cache_bytes)
      : paths_(std::move(paths)), size_(size), bytes_(static_cast<std::size_t>(3 * size * size)) {
    if (static_cast<std::int64_t>(paths_.size()) > cache_bytes / (3 * size * size)) return;
    pixels_.reset(new std::uint8_t[paths_.size() * bytes_]);  // not zeroed: memory is allocated as
                                                              // it is filled
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
    int state = kAbsent;  // two workers may read the same image at the end of an epoch: one of them
                          // stores it
    if (!states_[i].compare_exchange_strong(state, kBeingKept, std::memory_order_relaxed)) return;
    std::memcpy(kept, out.data(), bytes_);
    states_[i].store(kKept, std::memory_order_release);
  }

  // Adds CLASS/NAME and the size of each file, so that the location of the folder does not matter.
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
    const DecodedImage image = read_image(path);
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

// Returns the images in a folder and below, possibly none.
std::vector<std::string> find_images(const std::string& folder, LeftOut& left_out) {
  std::vector<std::string> paths = pick_files_below(folder, is_image_name, left_out);
  for (const std::string& path : paths) check_decoder(path);
  return paths;
}

// Returns the names of the folders in `directory`, in byte order.
std::vector<std::string> class_folders(const fs::path& directory, LeftOut* left_out = nullptr) {
  std::vector<std::string> names;
  for (const FolderEntry& entry : list_folder(directory.string())) {
    check_usable(entry, "a folder");
    if (entry.kind == FolderEntry::Kind::kFolder) {
      names.push_back(entry.name);
    } else if (is_image_name(entry.name)) {
      throw DataError(entry.path + ": an image in no folder of a class, expected " +
                      directory.string() + "/CLASS/" + entry.name);
    } else if (left_out != nullptr) {
      left_out->add(entry);
    }
  }
  if (names.empty())
    throw MissingFileError("no folders of classes in " + directory.string() + ": expected " +
                           directory.string() + "/CLASS/*.png or *.jpg");
  return names;
}

// Returns a line for the user, or "" if most of a few images are at least as large as the result.
std::string enlarged_line(const std::vector<std::string>& paths, std::int64_t size) {
  constexpr std::size_t kLookedAt = 15;
  std::vector<std::pair<ImageExtent, std::string>> small;
  const std::size_t count = std::min(paths.size(), kLookedAt);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string& path = paths[i * paths.size() / count];
    const std::optional<ImageExtent> extent = read_image_extent(path);
    if (extent && std::min(extent->width, extent->height) < size) small.emplace_back(*extent, path);
  }
  if (2 * small.size() <= count) return "";
  const auto& [extent, path] = small.front();
  const std::string side = std::to_string(size);
  return path + " is " + std::to_string(extent.width) + " x " + std::to_string(extent.height) +
         ", and so small are most images: they are enlarged to " + side + " x " + side +
         "; --image-size " + std::to_string(std::min(extent.width, extent.height)) +
         " takes them as they are";
}

// Adds lines for the user to `warnings`, if there are any: about files that are left out, and, if
// `small`, about images that are smaller than the requested size.
Dataset read_part(const DatasetOptions& options, const fs::path& directory,
                  const std::vector<std::string>& classes,
                  std::vector<std::string>* warnings = nullptr, bool small = false) {
  ClassLabels labels{.count = static_cast<std::int64_t>(classes.size()), .names = classes};
  LeftOut left_out;
  std::vector<std::string> paths;
  for (const std::string& name : class_folders(directory, &left_out)) {
    const auto label = std::lower_bound(classes.begin(), classes.end(), name);
    if (label == classes.end() || *label != name)
      throw DataError((directory / name).string() +
                      ": a class that is not in training: there is no " + options.directory +
                      "/train/" + name);
    std::vector<std::string> found = find_images((directory / name).string(), left_out);
    if (found.empty())
      throw DataError((directory / name).string() + ": found no image; " + kTakenImages);
    for (std::string& path : found) {
      paths.push_back(std::move(path));
      labels.ids.push_back(static_cast<std::int32_t>(label - classes.begin()));
    }
  }
  const auto warn = [&](std::string line) {
    if (warnings != nullptr && !line.empty()) warnings->push_back(std::move(line));
  };
  warn(left_out.line(directory.string(), kTakenImages));
  if (small) warn(enlarged_line(paths, options.images.size));
  return {.name = options.name,
          .samples = images_of_files(std::move(paths), options.images),
          .labels = std::move(labels)};
}

// Returns the classes of the existing folders, in byte order of their names.
std::vector<std::string> classes_below(const std::vector<fs::path>& directories) {
  std::vector<std::string> classes;
  for (const fs::path& directory : directories)
    for (std::string& name : class_folders(directory)) classes.push_back(std::move(name));
  std::sort(classes.begin(), classes.end());
  classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
  return classes;
}

// A single class is probably a superfluous folder between train/ and the classes.
void check_classes(const fs::path& training, const std::vector<std::string>& classes) {
  if (classes.size() > 1) return;
  constexpr std::size_t kShownClasses = 5;
  const std::string only = (training / classes.front()).string();
  std::vector<std::string> below;
  for (const FolderEntry& entry : list_folder(only))
    if (entry.kind == FolderEntry::Kind::kFolder) below.push_back("'" + entry.name + "'");
  std::string found = "no folders";
  if (!below.empty()) {
    const std::size_t count = below.size();
    below.resize(std::min(count, kShownClasses));
    found = std::to_string(count) + (count == 1 ? " folder: " : " folders: ") +
            base::join_text(below) + (count > kShownClasses ? " ..." : "");
  }
  throw DataError(training.string() + ": found a single class, '" + classes.front() +
                  "', expected at least 2 folders of classes; in " + only + " are " + found +
                  (below.empty() ? "" : "; if those are the classes, move them up by one level"));
}

// For a trained model: reads the existing parts, or DIR/CLASS. The model's classes are not known
// here.
DatasetSplits read_hold_out(const DatasetOptions& options) {
  const fs::path directory(options.directory), train = directory / "train";
  DatasetSplits splits;
  const fs::path held =
      is_divided(options.directory) ? fs::path(testing_folder(options, splits)) : directory;
  std::vector<fs::path> folders;
  if (!held.empty()) folders.push_back(held);
  if (fs::is_directory(train)) folders.push_back(train);
  const std::vector<std::string> classes = classes_below(folders);
  if (fs::is_directory(train)) splits.train = read_part(options, train, classes, nullptr);
  if (held.empty())
    splits.test = splits.train.like();
  else
    splits.test = read_part(options, held, classes, &splits.warnings);
  return splits;
}

DatasetSplits read_parts(const DatasetOptions& options) {
  if (options.parts == Parts::kHoldOut) return read_hold_out(options);
  DatasetSplits splits;
  const fs::path training = training_folder(options.directory),
                 testing = testing_folder(options, splits);
  const std::vector<std::string> classes = class_folders(training);
  check_classes(training, classes);
  // Test images have the size of the training images: one line is enough.
  splits.train = read_part(options, training, classes, &splits.warnings, /*small=*/true);
  if (testing.empty())
    splits.test = splits.train.like();
  else
    splits.test = read_part(options, testing, classes, &splits.warnings);
  return splits;
}

}  // namespace

bool is_image_name(const std::string& name) {
  return has_ending(name, ".png") || has_ending(name, ".jpg") || has_ending(name, ".jpeg");
}

FoundImages images_below(const std::string& folder) {
  LeftOut left_out;
  std::vector<std::string> paths = find_images(folder, left_out);
  if (paths.empty())
    throw DataError(folder + ": found no image; " + kTakenImages +
                    "; files in IDX format and CIFAR-10's *.bin are named one by one");
  return {std::move(paths), left_out.line(folder, kTakenImages)};
}

DatasetSplits read_image_folder_splits(const DatasetOptions& options) {
  return read_parts(options);
}

ImageSamples images_of_files(std::vector<std::string> paths, const ImageFileOptions& options) {
  if (options.size < 1 || options.size > 4096)
    throw ConfigError("images of size " + std::to_string(options.size) + ": expected 1..4096");
  ImageSamples images{.format = {.shape = {options.size, options.size, 3},
                                 .mean = {0.485f, 0.456f, 0.406f},
                                 .deviation = {0.229f, 0.224f, 0.225f},
                                 .scaled = true}};
  images.source =
      std::make_shared<FolderImages>(std::move(paths), options.size, options.cache_bytes);
  return images;
}

void check_decoder(const std::string& path) {
  const bool png = has_ending(path, ".png");
  if (png ? has_png_decoder() : has_jpeg_decoder()) return;
  throw ConfigError(path + ": this build reads no " + (png ? "PNG" : "JPEG") + " images: install " +
                    (png ? "libpng-dev" : "libjpeg62-turbo-dev") + " and build again");
}

}  // namespace io
