// Opens files of samples for a trained model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/data/dataset/splits.h"
#include "io/data/samples/sample_stream.h"

namespace io {

// The samples of these files, one file after the other, as a model takes them that was trained on
// `splits`. Images: *.png and *.jpg, files in IDX format, CIFAR-10's *.bin where the model's images
// are such; of a folder all its images, in byte order of their paths. A model of folders of images
// gets each as it did in training: scaled, and its middle; others want their own size, and gray of
// one channel is made of colors as Pillow's "L". Tables: columns are found by the names of the
// training table, in any order, and others are passed over; without names by their places, the
// label's being there or not. What was learnt in training is applied. `left_out` takes a
// line for each folder in which there are other files. Throws MissingFileError and DataError,
// naming the file.
std::unique_ptr<SampleStream> open_samples(const std::vector<std::string>& inputs,
                                           const DatasetSplits& splits,
                                           std::vector<std::string>* left_out = nullptr);

}  // namespace io
