// Reads a folder of images, with a subfolder for each class, as a data set.
#pragma once

#include <string>
#include <vector>

#include "io/data/dataset/dataset_options.h"
#include "io/data/dataset/splits.h"

namespace io {

// Classes are the subfolders of options.directory/train in byte order of their names; their images
// all *.png, *.jpg and *.jpeg below, in byte order of their paths, as torchvision's ImageFolder has
// it; data_folder.h says which files count. Tests are in the folder that image_parts.h chooses,
// whose classes must be among those of train. Images are decoded when they are wanted: shorter side
// to options.images.size, the middle square of that; for training with Augmentation::resized_crop a
// random part, scaled to the size. Without it they are kept in memory once decoded, if all of their
// part fits in options.images.cache_bytes. Mean and deviation are ImageNet's usual constants. A
// warning says what was left out, and whether most images are smaller than options.images.size.
// With options.parts kHoldOut the images for testing suffice, in val, test or options.directory
// itself, and may have classes that train lacks. Throws MissingFileError (no such folder, none with
// images), DataError (a class without images, or unknown in training), ConfigError (a format that
// this build cannot read).
DatasetSplits read_image_folder_splits(const DatasetOptions& options);

// Returns samples that are read from these files. Throws ConfigError for a size out of range.
ImageSamples images_of_files(std::vector<std::string> paths, const ImageFileOptions& options);
// Throws ConfigError if this build cannot read the image.
void check_decoder(const std::string& path);

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
