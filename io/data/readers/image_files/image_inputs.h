// Opens files of images for a trained model.
#pragma once

#include <memory>
#include <string>

#include "io/data/samples/image_samples.h"
#include "io/data/samples/sample_stream.h"

namespace io {

// Opens one image, or a file of many in IDX format or CIFAR-10's, depending on the name; `like`
// must outlive the stream. Throws as open_samples().
std::unique_ptr<SampleStream> open_images(const std::string& path, const ImageSamples& like);

}  // namespace io
