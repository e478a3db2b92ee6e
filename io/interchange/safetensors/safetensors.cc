// Reads the bounds first, then pieces in place. Writes a header padded to 8 bytes, then the data.
#include "io/interchange/safetensors/safetensors.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "io/base/text/utf8.h"
#include "io/checkpoint/atomic_file.h"
#include "io/interchange/safetensors/safetensors_header.h"

namespace io {
namespace {

constexpr std::uint64_t kLargestHeader = 100'000'000;  // the format's own limit
constexpr std::pair<std::string_view, DType> kSafetensorsTypes[] = {
    {"F32", DType::kF32}, {"F64", DType::kF64}, {"F16", DType::kF16}, {"BF16", DType::kBF16},
    {"I64", DType::kI64}, {"I32", DType::kI32}, {"U8", DType::kU8}};

constexpr std::string_view kUnreadTypes[] = {"BOOL", "I8", "I16", "U16", "U32", "U64"};

// Returns nothing for an unsupported type; no model has weights of these.
std::optional<DType> type_of(const SafetensorsEntry& entry, const std::string& file) {
  for (const auto& [name, type] : kSafetensorsTypes)
    if (entry.dtype == name) return type;
  if (std::ranges::find(kUnreadTypes, entry.dtype) != std::end(kUnreadTypes)) return std::nullopt;
  throw DataError(file + ": '" + entry.name + "' has dtype " + entry.dtype +
                  "; known are F32, F64, F16, BF16, I64, I32, U8");
}

std::uint64_t byte_count(const SafetensorsEntry& entry, DType type, const std::string& file) {
  std::uint64_t bytes = size_of(type);
  for (const std::int64_t d : entry.shape)
    if (d < 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(d), &bytes))
      throw DataError(file + ": the shape of '" + entry.name + "' overflows");
  return bytes;
}

class SafetensorsSource : public ArraySource {
 public:
  explicit SafetensorsSource(std::unique_ptr<ByteSource> bytes) : ArraySource(std::move(bytes)) {
    const std::uint64_t size = bytes_->size();
    std::uint64_t header = 0;
    if (size < sizeof header)
      throw DataError(name() + ": not a safetensors file: " + std::to_string(size) + " bytes long");
    bytes_->read(0,
                 std::as_writable_bytes(std::span(&header, 1)));  // little-endian, as the machine
    if (header > kLargestHeader || header > size - sizeof header)
      throw DataError(name() + ": not a safetensors file, or truncated: a header of " +
                      std::to_string(header) + " bytes in a file of " + std::to_string(size));
    data_ = sizeof header + header;
    const std::vector<std::byte> text = bytes_->bytes(sizeof header, header);
    std::vector<SafetensorsEntry> found =
        parse_safetensors_header({reinterpret_cast<const char*>(text.data()), text.size()}, name());
    std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    std::uint64_t at = 0;
    for (SafetensorsEntry& entry : found) at = take(entry, at);
    if (at != size - data_)
      throw DataError(name() + ": " + std::to_string(size - data_ - at) +
                      " bytes after the last tensor belong to none");
  }

  bool in_model_order() const override { return false; }  // PyTorch's writer sorts by type and name
  bool many_readers() const override { return true; }
  void read(std::size_t index, std::uint64_t offset, std::span<std::byte> target) override {
    bytes_->read(begins_[index] + offset, target);
  }
  void finish() override {}  // the format has no checksums

 private:
  // Returns the end of the entry, at which the next one must start.
  std::uint64_t take(SafetensorsEntry& entry, std::uint64_t at) {
    const std::uint64_t data_size = bytes_->size() - data_;
    if (entry.begin != at || entry.end < entry.begin || entry.end > data_size)
      throw DataError(name() + ": '" + entry.name + "' lies at bytes " +
                      std::to_string(entry.begin) + " to " + std::to_string(entry.end) +
                      ", expected to start at " + std::to_string(at) + " and to end by " +
                      std::to_string(data_size));
    const std::optional<DType> type = type_of(entry, name());
    if (!type) {
      unread_.push_back({std::move(entry.name), std::move(entry.dtype)});
      return entry.end;
    }
    const std::uint64_t wanted = byte_count(entry, *type, name());
    if (entry.end - entry.begin != wanted)
      throw DataError(name() + ": '" + entry.name + "' has " +
                      std::to_string(entry.end - entry.begin) +
                      " bytes, its shape and dtype need " + std::to_string(wanted));
    begins_.push_back(data_ + entry.begin);
    entries_.push_back(
        {std::move(entry.name), Section::kParameter, *type, std::move(entry.shape), wanted});
    return entry.end;
  }

  std::uint64_t data_ = 0;  // start of the tensors in the file
  std::vector<std::uint64_t> begins_;
};

}  // namespace

std::unique_ptr<ArraySource> open_safetensors(std::unique_ptr<ByteSource> bytes) {
  return std::make_unique<SafetensorsSource>(std::move(bytes));
}

void save_safetensors(const std::vector<NamedArray>& arrays, const std::string& path) {
  std::vector<SafetensorsEntry> entries;
  std::uint64_t at = 0;
  for (const NamedArray& array : arrays) {
    const auto type = std::find_if(std::begin(kSafetensorsTypes), std::end(kSafetensorsTypes),
                                   [&](const auto& t) { return t.second == array.type; });
    if (type == std::end(kSafetensorsTypes))
      throw DataError(path + ": '" + array.name + "' has no safetensors type");
    if (!base::is_utf8(array.name))
      throw DataError(path + ": '" + array.name + "' cannot be saved: its name is not UTF-8");
    entries.push_back(
        {array.name, std::string(type->first), array.shape, at, at + array.data.size()});
    if (byte_count(entries.back(), array.type, path) != array.data.size())
      throw DataError(path + ": '" + array.name + "' cannot be saved: " +
                      std::to_string(array.data.size()) + " bytes do not fit its shape and type");
    at += array.data.size();
  }
  std::string header = write_safetensors_header(entries);
  header.resize((header.size() + 7) / 8 * 8, ' ');
  // Never write a file that the reader would reject.
  static_cast<void>(parse_safetensors_header(header, path));
  std::byte length[8];
  for (std::size_t i = 0; i < 8; ++i)
    length[i] = static_cast<std::byte>(static_cast<std::uint64_t>(header.size()) >> (8 * i));

  AtomicFile file(path, sizeof length + header.size() + at);
  file.write(length);
  file.write(std::as_bytes(std::span(header)));
  for (const NamedArray& array : arrays) file.write(array.data);
  file.commit();
}

}  // namespace io
