// Files of named arrays by what they contain: .ckpt, .safetensors, .npz.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/checkpoint/array_source.h"

namespace io {

// By its first bytes, whatever the name. Throws MissingFileError, DataError (also for pickles,
// which are never read) and Error.
std::unique_ptr<ArraySource> open_arrays(const std::string& path);
std::unique_ptr<ArraySource> open_arrays(std::unique_ptr<ByteSource> bytes);

// All arrays in memory. Those of plain files (.safetensors, .npz) get the section that their name
// tells; those of checkpoints keep section and device. Throws as open_arrays.
std::vector<NamedArray> load_arrays(const std::string& path);

// What PyTorch's BatchNorm calls its buffers: running_mean, running_var, num_batches_tracked.
Section section_of_name(const std::string& name);
bool is_running_statistic(const std::string& name);  // "...running_mean", "...running_var"

// Writes .safetensors or .npz by the ending of `path`. Throws ConfigError for another ending, else
// as their writers.
void save_arrays(const std::vector<NamedArray>& arrays, const std::string& path);

// `array` with its numbers as f16 or bf16, rounded to nearest even; integers and what is already as
// small stay as they are. Throws DataError that begins with `what` for a finite number beyond the
// type's range.
NamedArray to_half(const NamedArray& array, DType half, const std::string& what);

}  // namespace io
