// Opens files of samples for a trained model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/data/dataset/splits.h"
#include "io/data/samples/sample_stream.h"

namespace io {

// Returns the samples of these files, one file after the other, in the form for a model that was
// trained on `splits`. Images: *.png and *.jpg, files in IDX format, CIFAR-10's *.bin if the
// model's images are of that kind; for a folder all its images, in byte order of their paths. A
// model for folders of images gets each image as in training: scaled, and its middle; other models
// require their own size, and colors are converted to one gray channel like Pillow's "L". Tables:
// columns are found by the names of the training table, in any order, and others are skipped;
// without names by position, with or without the label column. The coding learned in training is
// applied. Arrays: the array x of .npz files, of the shape of the training samples. `left_out`
// receives a line for each folder that contains other files. Throws MissingFileError and DataError
// with the file.
std::unique_ptr<SampleStream> open_samples(const std::vector<std::string>& inputs,
                                           const DatasetSplits& splits,
                                           std::vector<std::string>* left_out = nullptr);

}  // namespace io
