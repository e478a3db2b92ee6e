// Reads the samples of .npz and .npy files for a trained model.
#pragma once

#include <memory>
#include <string>

#include "io/data/samples/array_samples.h"
#include "io/data/samples/sample_stream.h"

namespace io {

// Returns the samples of the array x, or of the .npy file, which must have the shape of `like`.
// Throws as read_array_file() and array_samples().
std::unique_ptr<SampleStream> open_array_samples(const std::string& path, const ArraySamples& like);

}  // namespace io
