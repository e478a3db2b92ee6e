// Files of named arrays by what they contain: .ckpt, .safetensors, .npz, .pth.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/array_source.h"

namespace io {

// By its first bytes, whatever the name. Throws MissingFileError, DataError (also for pickles
// outside an archive of torch.save) and Error.
std::unique_ptr<ArraySource> open_arrays(const std::string& path);
std::unique_ptr<ArraySource> open_arrays(std::unique_ptr<ByteSource> bytes);

// All arrays in memory; `unread` takes those of types that are not read. Those of plain files
// (.safetensors, .npz, .pth) get the section that their name tells; those of checkpoints keep
// section and device. Throws as open_arrays.
std::vector<NamedArray> load_arrays(const std::string& path,
                                    std::vector<UnreadArray>* unread = nullptr);

// What PyTorch's BatchNorm calls its buffers: running_mean, running_var, num_batches_tracked.
Section section_of_name(const std::string& name);
bool is_running_statistic(const std::string& name);  // "...running_mean", "...running_var"

enum class ArrayFormat : std::uint8_t { kSafetensors, kNpz, kPth };
// "safetensors", "npz", "pth"; nothing for another name.
std::optional<ArrayFormat> array_format(std::string_view name);
// By the ending of a path: .safetensors, .npz, .pth or .pt; nothing for another.
std::optional<ArrayFormat> array_format_of(const std::string& path);

// Throws as the format's writer.
void save_arrays(const std::vector<NamedArray>& arrays, const std::string& path,
                 ArrayFormat format);
// By the ending of `path`. Throws ConfigError for one that tells no format.
void save_arrays(const std::vector<NamedArray>& arrays, const std::string& path);

// `array` with its numbers as f16 or bf16, rounded to nearest even; integers and what is already as
// small stay as they are. Throws DataError that begins with `what` for a finite number beyond the
// type's range.
NamedArray to_half(const NamedArray& array, DType half, const std::string& what);

}  // namespace io
