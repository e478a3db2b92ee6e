// Loads and saves files of named arrays in several formats: .ckpt, .safetensors, .npz, .pth.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/array_source.h"

namespace io {

// Detects the format by the first bytes, independent of the name. Throws MissingFileError,
// DataError (also for pickles outside an archive of torch.save) and Error.
std::unique_ptr<ArraySource> open_arrays(const std::string& path);
std::unique_ptr<ArraySource> open_arrays(std::unique_ptr<ByteSource> bytes);

// Loads all arrays into memory; `unread` receives those of unsupported types. Arrays of plain files
// (.safetensors, .npz, .pth) get the section that follows from their name; those of checkpoints
// keep section and device. Throws as open_arrays.
std::vector<NamedArray> load_arrays(const std::string& path,
                                    std::vector<UnreadArray>* unread = nullptr);

// Recognizes the names of PyTorch's BatchNorm buffers: running_mean, running_var,
// num_batches_tracked.
Section section_of_name(const std::string& name);
bool is_running_statistic(const std::string& name);  // "...running_mean", "...running_var"

enum class ArrayFormat : std::uint8_t { kSafetensors, kNpz, kPth };
// Parses "safetensors", "npz", "pth"; nothing for another name.
std::optional<ArrayFormat> array_format(std::string_view name);
// Returns the format for the ending of a path: .safetensors, .npz, .pth or .pt; nothing for
// another.
std::optional<ArrayFormat> array_format_of(const std::string& path);

// Throws as the format's writer.
void save_arrays(const std::vector<NamedArray>& arrays, const std::string& path,
                 ArrayFormat format);
// Uses the format for the ending of `path`. Throws ConfigError for an unknown one.
void save_arrays(const std::vector<NamedArray>& arrays, const std::string& path);

// Returns `array` with its numbers as f16 or bf16, rounded to nearest even; integers and numbers
// that have this type are unchanged. Throws DataError that starts with `what` for a finite
// number beyond the type's range.
NamedArray to_half(const NamedArray& array, DType half, const std::string& what);

// Returns the matrix with its two dimensions exchanged.
NamedArray transposed(NamedArray array);

}  // namespace io
