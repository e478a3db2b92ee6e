// Reads a folder of images, with a subfolder for each class, as a data set.
#pragma once

#include <string>
#include <vector>

#include "io/data/dataset/dataset_options.h"
#include "io/data/dataset/splits.h"

namespace io {

// The classes are the subfolders of options.directory/train in byte order of their names; their
// images are all *.png, *.jpg and *.jpeg below, in byte order of their paths, as in torchvision's
// ImageFolder; data_folder.h defines which files count. The test part is options.directory/val, or
// otherwise /test, whose classes must be among those of train. Images are decoded on demand: the
// shorter side is scaled to options.image_size, and the middle square is used; for training with
// Augmentation::resized_crop a random part, scaled to the size. Without it decoded images are kept
// in memory if all of their part fits in options.image_cache_bytes. Mean and deviation are
// ImageNet's usual constants. Warnings report files that are left out, and if most images are
// smaller than options.image_size. With options.parts kHoldOut the test images suffice, in val,
// test or options.directory itself, and may have classes that train does not have. Throws
// MissingFileError (no such folder, or no images), DataError (a class without images, or unknown in
// training), ConfigError (a format that this build cannot read).
DatasetSplits read_image_folder_splits(const DatasetOptions& options);

bool is_image_name(const std::string& name);  // *.png, *.jpg, *.jpeg, in any case

// All images in a folder and below, in byte order of their paths, and a line for the user if other
// files are left out, or "". Throws DataError if there are none, MissingFileError if it cannot be
// read, ConfigError as above.
struct FoundImages {
  std::vector<std::string> paths;
  std::string left_out;
};
FoundImages images_below(const std::string& folder);

}  // namespace io
