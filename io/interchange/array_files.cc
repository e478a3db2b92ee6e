// Detects a file's format, and loads and saves arrays in any of them.
#include "io/interchange/array_files.h"

#include <cmath>
#include <cstring>

#include "io/base/numbers/half.h"
#include "io/base/numbers/number_bytes.h"
#include "io/interchange/numpy/npz.h"
#include "io/interchange/safetensors/safetensors.h"
#include "io/interchange/torch/torch_archive.h"
#include "io/interchange/zip/zip_archive.h"

namespace io {
namespace {

// "\x80" and the protocol start a pickle, as older PyTorch wrote it.
bool is_pickle(std::span<const std::byte> first) {
  return first.size() >= 2 && first[0] == std::byte{0x80} && first[1] >= std::byte{2} &&
         first[1] <= std::byte{5} && (first.size() < 9 || first[8] != std::byte{'{'});
}

// Returns a number of a floating-point array; double has those of every type.
double number_at(const NamedArray& array, std::size_t i) {
  switch (array.type) {
    case DType::kF16:
      return static_cast<double>(base::to_float(base::element_at<base::f16>(array.data, i)));
    case DType::kBF16:
      return static_cast<double>(base::to_float(base::element_at<base::bf16>(array.data, i)));
    case DType::kF32:
      return static_cast<double>(base::element_at<float>(array.data, i));
    default:
      return base::element_at<double>(array.data, i);
  }
}

// Converts f64 to float with rounding to odd, so that the second rounding, to half, is correct.
float to_float_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || !std::isfinite(value) || !std::isfinite(nearest))
    return nearest;
  const bool too_far = std::abs(static_cast<double>(nearest)) > std::abs(value);
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (too_far) --bits;  // towards zero
  return std::bit_cast<float>(bits | 1);
}

}  // namespace

std::unique_ptr<ArraySource> open_arrays(std::unique_ptr<ByteSource> bytes) {
  const std::string& name = bytes->name();
  if (is_checkpoint(*bytes)) return open_checkpoint_arrays(std::move(bytes));
  if (is_zip(*bytes))
    return is_torch_archive(*bytes) ? open_torch_archive(std::move(bytes))
                                    : open_npz(std::move(bytes));
  const std::vector<std::byte> first = bytes->bytes(0, std::min<std::uint64_t>(bytes->size(), 16));
  if (first.empty()) throw DataError(name + ": the file is empty");
  if (is_pickle(first))
    throw DataError(
        name +
        ": a pickle without an archive, as PyTorch before 1.6 wrote it; save it again with "
        "torch.save of PyTorch >= 1.6 (docs/interchange.md)");
  if (first.size() >= 6 && std::memcmp(first.data(), "\x93NUMPY", 6) == 0)
    throw DataError(name + ": a single .npy array; expected an .npz with an array for each name");
  if (first.size() > 8 && first[8] == std::byte{'{'}) return open_safetensors(std::move(bytes));
  throw DataError(
      name +
      ": neither a checkpoint of engine nor .safetensors, .npz or .pth, or damaged in its first "
      "bytes");
}

std::unique_ptr<ArraySource> open_arrays(const std::string& path) {
  return open_arrays(open_bytes(path));
}

std::vector<NamedArray> load_arrays(const std::string& path, std::vector<UnreadArray>* unread) {
  std::unique_ptr<ByteSource> bytes = open_bytes(path);
  if (is_checkpoint(*bytes)) return load_checkpoint(path).arrays;
  const std::unique_ptr<ArraySource> source = open_arrays(std::move(bytes));
  if (unread != nullptr) *unread = source->unread();
  std::vector<NamedArray> arrays = read_arrays(*source);
  for (NamedArray& array : arrays) array.section = section_of_name(array.name);
  return arrays;
}

bool is_running_statistic(const std::string& name) {
  return name.ends_with("running_mean") || name.ends_with("running_var");
}

Section section_of_name(const std::string& name) {
  return is_running_statistic(name) || name.ends_with("num_batches_tracked") ? Section::kBuffer
                                                                             : Section::kParameter;
}

std::optional<ArrayFormat> array_format(std::string_view name) {
  if (name == "safetensors") return ArrayFormat::kSafetensors;
  if (name == "npz") return ArrayFormat::kNpz;
  if (name == "pth") return ArrayFormat::kPth;
  return std::nullopt;
}

std::optional<ArrayFormat> array_format_of(const std::string& path) {
  for (const std::string_view ending : {".safetensors", ".npz", ".pth"})
    if (path.ends_with(ending)) return array_format(ending.substr(1));
  if (path.ends_with(".pt")) return ArrayFormat::kPth;
  return std::nullopt;
}

void save_arrays(const std::vector<NamedArray>& arrays, const std::string& path,
                 ArrayFormat format) {
  switch (format) {
    case ArrayFormat::kSafetensors:
      return save_safetensors(arrays, path);
    case ArrayFormat::kNpz:
      return save_npz(arrays, path);
    case ArrayFormat::kPth:
      return save_torch_archive(arrays, path);
  }
}

void save_arrays(const std::vector<NamedArray>& arrays, const std::string& path) {
  const std::optional<ArrayFormat> format = array_format_of(path);
  if (!format)
    throw ConfigError("'" + path +
                      "': expected a name that ends in .safetensors, .npz, .pth or .pt");
  save_arrays(arrays, path, *format);
}

NamedArray to_half(const NamedArray& array, DType half, const std::string& what) {
  if (!base::is_floating(array.type) || array.type == half) return array;
  NamedArray out{.name = array.name,
                 .section = array.section,
                 .type = half,
                 .shape = array.shape,
                 .device = array.device,
                 .data = {}};
  const std::size_t count = array.data.size() / size_of(array.type);
  out.data.resize(count * sizeof(std::uint16_t));
  for (std::size_t i = 0; i < count; ++i) {
    const double value = number_at(array, i);
    const float narrow = to_float_odd(value);
    const auto f16 = base::from_float<base::f16>(narrow);
    const auto bf16 = base::from_float<base::bf16>(narrow);
    const std::uint16_t bits = half == DType::kF16 ? f16.bits : bf16.bits;
    const float back = half == DType::kF16 ? base::to_float(f16) : base::to_float(bf16);
    if (std::isinf(back) && std::isfinite(value))
      throw DataError(what + ": '" + array.name + "' holds " + std::to_string(value) +
                      ", beyond the range of " + std::string(to_string(half)) +
                      (half == DType::kF16 ? " (65504); bf16 reaches as far as f32" : ""));
    std::memcpy(out.data.data() + i * sizeof bits, &bits, sizeof bits);
  }
  return out;
}

NamedArray transposed(NamedArray array) {
  const auto rows = static_cast<std::size_t>(array.shape[0]),
             columns = static_cast<std::size_t>(array.shape[1]), each = size_of(array.type);
  std::vector<std::byte> turned(array.data.size());
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c)
      std::memcpy(turned.data() + (c * rows + r) * each,
                  array.data.data() + (r * columns + c) * each, each);
  array.data = std::move(turned);
  std::swap(array.shape[0], array.shape[1]);
  return array;
}

}  // namespace io
