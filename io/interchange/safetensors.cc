// Reading: bounds first, then copies. Writing: a header padded to 8 bytes, then the data.
#include "io/interchange/safetensors.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "io/checkpoint/atomic_file.h"
#include "io/interchange/safetensors_header.h"

namespace io {
namespace {

constexpr std::uint64_t kLargestHeader = 100'000'000;  // the format's own cap
constexpr std::pair<std::string_view, ArrayType> kTypes[] = {
    {"F32", ArrayType::kF32}, {"F64", ArrayType::kF64}, {"F16", ArrayType::kF16}, {"BF16", ArrayType::kBf16},
    {"I64", ArrayType::kI64}, {"I32", ArrayType::kI32}, {"U8", ArrayType::kU8}};

ArrayType type_of(const SafetensorsEntry& entry, const std::string& file) {
  for (const auto& [name, type] : kTypes)
    if (entry.dtype == name) return type;
  throw DataError(file + ": '" + entry.name + "' has dtype " + entry.dtype + "; known are F32, F64, F16, BF16, I64, I32, U8");
}

std::uint64_t byte_count(const SafetensorsEntry& entry, ArrayType type, const std::string& file) {
  std::uint64_t bytes = size_of(type);
  for (const std::int64_t d : entry.shape)
    if (d < 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(d), &bytes))
      throw DataError(file + ": the shape of '" + entry.name + "' overflows");
  return bytes;
}

}  // namespace

std::vector<NamedArray> parse_safetensors(const std::vector<std::byte>& bytes, const std::string& name) {
  std::uint64_t header = 0;
  if (bytes.size() < sizeof header)
    throw DataError(name + ": not a safetensors file: " + std::to_string(bytes.size()) + " bytes long");
  for (int i = 7; i >= 0; --i) header = header << 8 | std::to_integer<std::uint64_t>(bytes[static_cast<std::size_t>(i)]);
  if (header > kLargestHeader || header > bytes.size() - sizeof header)
    throw DataError(name + ": not a safetensors file, or truncated: a header of " + std::to_string(header) +
                    " bytes in a file of " + std::to_string(bytes.size()));
  const std::byte* data = bytes.data() + sizeof header + header;
  const std::uint64_t data_size = bytes.size() - sizeof header - header;
  std::vector<SafetensorsEntry> entries = parse_safetensors_header(
      {reinterpret_cast<const char*>(bytes.data()) + sizeof header, static_cast<std::size_t>(header)}, name);
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  std::vector<NamedArray> arrays;
  std::uint64_t at = 0;
  for (const SafetensorsEntry& entry : entries) {
    const ArrayType type = type_of(entry, name);
    if (entry.begin != at || entry.end < entry.begin || entry.end > data_size)
      throw DataError(name + ": '" + entry.name + "' lies at bytes " + std::to_string(entry.begin) + " to " +
                      std::to_string(entry.end) + ", expected to start at " + std::to_string(at) + " and to end by " +
                      std::to_string(data_size));
    const std::uint64_t wanted = byte_count(entry, type, name);
    if (entry.end - entry.begin != wanted)
      throw DataError(name + ": '" + entry.name + "' has " + std::to_string(entry.end - entry.begin) +
                      " bytes, its shape and dtype want " + std::to_string(wanted));
    NamedArray array{
        .name = entry.name, .section = Section::kParameter, .type = type, .shape = entry.shape, .device = "cpu:0", .data = {}};
    array.data.assign(data + entry.begin, data + entry.end);
    arrays.push_back(std::move(array));
    at = entry.end;
  }
  if (at != data_size)
    throw DataError(name + ": " + std::to_string(data_size - at) + " bytes after the last tensor belong to none");
  return arrays;
}

std::vector<NamedArray> load_safetensors(const std::string& path) { return parse_safetensors(read_file(path), path); }

void save_safetensors(const std::vector<NamedArray>& arrays, const std::string& path) {
  std::vector<SafetensorsEntry> entries;
  std::uint64_t at = 0;
  for (const NamedArray& array : arrays) {
    const auto type = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& t) { return t.second == array.type; });
    entries.push_back({array.name, std::string(type->first), array.shape, at, at + array.data.size()});
    if (byte_count(entries.back(), array.type, path) != array.data.size())
      throw DataError(path + ": '" + array.name + "' cannot be saved: " + std::to_string(array.data.size()) +
                      " bytes do not fit its shape and type");
    at += array.data.size();
  }
  std::string header = write_safetensors_header(entries);
  header.resize((header.size() + 7) / 8 * 8, ' ');
  static_cast<void>(parse_safetensors_header(header, path));  // never writes what it would not read
  std::byte length[8];
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<std::byte>(static_cast<std::uint64_t>(header.size()) >> (8 * i));

  AtomicFile file(path, sizeof length + header.size() + at);
  file.write(length);
  file.write(std::as_bytes(std::span(header)));
  for (const NamedArray& array : arrays) file.write(array.data);
  file.commit();
}

}  // namespace io
