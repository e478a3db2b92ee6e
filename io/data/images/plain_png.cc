// Implements chunks, unpacking with libdeflate, and the five filters of a row (PNG specification,
// third edition, chapters 5 and 9). Two thirds of libpng's time are spent in zlib and in the
// filters, which libpng applies byte by byte.
#include "io/data/images/plain_png.h"

#include <libdeflate.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "io/base/digests/crc32.h"
#include "io/base/files/io_error.h"

namespace io {
namespace {

using Bytes = std::span<const std::uint8_t>;

constexpr std::size_t kMagicBytes = 8, kChunkBytes = 12;  // length, type and checksum of a chunk
constexpr std::uint32_t kLongestSide = 1u << 20;          // the same as in png_decoder.cc
constexpr std::uint64_t kMaxFromAByte = 1032;             // limit of deflate's compression ratio
constexpr std::size_t kReadBehind = 3;                    // past the end of a row, by undo_filter()

struct PlainFile {
  std::uint32_t width = 0, height = 0;
  int samples = 0;          // per pixel: 1 gray, 2 with transparency, 3 RGB, 4 with transparency
  std::vector<Bytes> data;  // the parts of the packed pixels
  std::uint64_t row_bytes() const { return std::uint64_t{width} * static_cast<unsigned>(samples); }
  // Includes the filters' numbers.
  std::uint64_t raw_bytes() const { return (row_bytes() + 1) * height; }
};

std::uint32_t word(const std::uint8_t* at) {
  return std::uint32_t{at[0]} << 24 | std::uint32_t{at[1]} << 16 | std::uint32_t{at[2]} << 8 |
         at[3];
}

bool has_its_sum(Bytes chunk) {  // checksum of type and data
  const Bytes summed = chunk.subspan(4, chunk.size() - 8);
  return base::add_crc32(0, std::as_bytes(summed)) == word(chunk.last(4).data());
}

bool read_header(Bytes data, PlainFile& file) {
  if (data.size() != 13) return false;
  file.width = word(data.data());
  file.height = word(data.data() + 4);
  const int bits = data[8], color = data[9];
  const bool usual = bits == 8 && data[10] == 0 && data[11] == 0 && data[12] == 0;
  file.samples = color == 0 ? 1 : color == 2 ? 3 : color == 4 ? 2 : color == 6 ? 4 : 0;
  return usual && file.samples != 0 && file.width - 1 < kLongestSide &&
         file.height - 1 < kLongestSide;
}

// Returns false if the file should be left to libpng.
bool read_chunks(Bytes bytes, PlainFile& file) {
  bool in_data = false;
  std::uint64_t packed = 0;
  for (bytes = bytes.subspan(std::min(kMagicBytes, bytes.size()));;) {
    if (bytes.size() < kChunkBytes || word(bytes.data()) > bytes.size() - kChunkBytes) return false;
    const std::size_t length = word(bytes.data());
    const Bytes chunk = bytes.first(length + kChunkBytes), data = chunk.subspan(8, length);
    const std::string_view type(reinterpret_cast<const char*>(chunk.data()) + 4, 4);
    bytes = bytes.subspan(chunk.size());
    const bool is_data = type == "IDAT";
    if (is_data || type == "IHDR" || type == "IEND") {
      if (!has_its_sum(chunk)) return false;
    } else if ((static_cast<unsigned char>(type[0]) & 0x20) == 0 && type != "PLTE") {
      return false;  // a critical chunk must not be skipped
    }
    if ((file.width == 0) != (type == "IHDR")) return false;
    if (type == "IHDR" && !read_header(data, file)) return false;
    if (type == "IEND") break;
    if (is_data && !in_data && !file.data.empty()) return false;  // another chunk in between
    in_data = is_data;
    if (!is_data) continue;
    file.data.push_back(data);
    packed += length;
  }
  return packed > 0 && file.raw_bytes() / kMaxFromAByte <= packed;
}

// Returns the rows as they are stored, each after the number of its filter; null if the data are
// damaged.
std::unique_ptr<std::uint8_t[]> unpack(const PlainFile& file) {
  struct Free {
    void operator()(libdeflate_decompressor* d) const { libdeflate_free_decompressor(d); }
  };
  thread_local const std::unique_ptr<libdeflate_decompressor, Free> decompressor(
      libdeflate_alloc_decompressor());
  if (!decompressor) return nullptr;
  std::vector<std::uint8_t> joined;
  Bytes packed = file.data.front();
  if (file.data.size() > 1) {
    for (const Bytes part : file.data) joined.insert(joined.end(), part.begin(), part.end());
    packed = joined;
  }
  auto raw = std::make_unique_for_overwrite<std::uint8_t[]>(file.raw_bytes() + kReadBehind);
  std::size_t made = 0;
  const libdeflate_result result = libdeflate_zlib_decompress(
      decompressor.get(), packed.data(), packed.size(), raw.get(), file.raw_bytes(), &made);
  return result == LIBDEFLATE_SUCCESS && made == file.raw_bytes() ? std::move(raw) : nullptr;
}

// A pixel with one sample per lane; the other lanes are undefined.
using Lanes = std::int16_t __attribute__((vector_size(16)));
using Narrow = std::uint8_t __attribute__((vector_size(16)));
using Packed = std::uint8_t __attribute__((vector_size(8)));
using FourWords = std::uint32_t __attribute__((vector_size(16)));

Lanes load(const std::uint8_t* at) {  // reads four bytes
  std::uint32_t four = 0;
  std::memcpy(&four, at, sizeof four);
  const auto bytes = reinterpret_cast<Narrow>(FourWords{four});
  return reinterpret_cast<Lanes>(__builtin_shufflevector(bytes, Narrow{}, 0, 16, 1, 17, 2, 18, 3,
                                                         19, 4, 20, 5, 21, 6, 22, 7, 23));
}

template <int kBytes>
Lanes store(std::uint8_t* at, Lanes pixel) {  // returns the stored value
  pixel &= 255;
  const auto packed = __builtin_convertvector(pixel, Packed);
  std::memcpy(at, &packed, kBytes);
  return pixel;
}

Lanes magnitude(Lanes value) { return value < 0 ? -value : value; }

// Returns the one of left, above and above left that is nearest to left + above - above left.
Lanes paeth(Lanes left, Lanes above, Lanes corner) {
  const Lanes to_left = magnitude(above - corner), to_above = magnitude(left - corner),
              to_corner = magnitude(left + above - corner - corner);
  const Lanes nearer = to_above <= to_corner ? above : corner;
  return ((to_left <= to_above) & (to_left <= to_corner)) ? left : nearer;
}

// Computes each pixel with `undo` from the stored and the above one. A pixel of three bytes is
// written with a fourth one, which the next pixel overwrites; the last pixel is written exactly.
template <int kSamples>
void by_pixel(const std::uint8_t* stored, const std::uint8_t* before, std::uint8_t* row,
              std::size_t bytes, auto&& undo) {
  constexpr int kWide = kSamples + (kSamples == 3 ? 1 : 0);
  Lanes left{};
  std::size_t i = 0;
  for (; i + kSamples < bytes; i += kSamples)
    left = store<kWide>(row + i, undo(load(stored + i), load(before + i), left));
  store<kSamples>(row + i, undo(load(stored + i), load(before + i), left));
}

// Decodes a row of `bytes` bytes. `stored` may be `row` unless pixels have three bytes, but
// `before`, the row above, may not. Three bytes past the end of `stored` and `before` are read.
// Returns false if there is no such filter.
template <int kSamples>
bool undo_filter(int filter, const std::uint8_t* stored, const std::uint8_t* before,
                 std::uint8_t* row, std::size_t bytes) {
  switch (filter) {
    case 0:
      std::memmove(row, stored, bytes);
      return true;
    case 1:
      by_pixel<kSamples>(stored, before, row, bytes,
                         [](Lanes change, Lanes, Lanes left) { return change + left; });
      return true;
    case 2:
      for (std::size_t i = 0; i < bytes; ++i)
        row[i] = static_cast<std::uint8_t>(stored[i] + before[i]);
      return true;
    case 3:
      by_pixel<kSamples>(stored, before, row, bytes, [](Lanes change, Lanes above, Lanes left) {
        return change + ((left + above) >> 1);
      });
      return true;
    case 4:
      by_pixel<kSamples>(stored, before, row, bytes,
                         [corner = Lanes{}](Lanes change, Lanes above, Lanes left) mutable {
                           const Lanes pixel = change + paeth(left, above, corner);
                           corner = above;
                           return pixel;
                         });
      return true;
    default:
      return false;
  }
}

// Converts a row that is gray or has transparency to RGB.
template <int kSamples>
void to_rgb(const std::uint8_t* row, std::uint32_t width, std::uint8_t* pixels) {
  for (std::uint32_t x = 0; x < width; ++x, row += kSamples, pixels += 3) {
    pixels[0] = row[0];
    pixels[1] = row[kSamples < 3 ? 0 : 1];
    pixels[2] = row[kSamples < 3 ? 0 : 2];
  }
}

template <int kSamples>
bool read_rows(const PlainFile& file, std::uint8_t* raw, DecodedImage& image) {
  const std::size_t bytes = file.row_bytes(), row_of_image = std::size_t{3} * file.width;
  const std::vector<std::uint8_t> nothing(bytes + kReadBehind);
  const std::uint8_t* before = nothing.data();
  for (std::uint32_t y = 0; y < file.height; ++y, raw += bytes + 1) {
    std::uint8_t* pixels = image.pixels.data() + y * row_of_image;
    std::uint8_t* row = kSamples == 3 ? pixels : raw + 1;
    if (!undo_filter<kSamples>(raw[0], raw + 1, before, row, bytes)) return false;
    if constexpr (kSamples != 3) to_rgb<kSamples>(row, file.width, pixels);
    before = row;
  }
  return true;
}

}  // namespace

std::optional<DecodedImage> decode_plain_png(Bytes bytes, const std::string& path) {
  PlainFile file;
  if (!read_chunks(bytes, file)) return std::nullopt;
  DecodedImage image = make_image(file.width, file.height, path);
  const std::unique_ptr<std::uint8_t[]> raw = unpack(file);
  if (!raw) return std::nullopt;
  const bool whole = file.samples == 1   ? read_rows<1>(file, raw.get(), image)
                     : file.samples == 2 ? read_rows<2>(file, raw.get(), image)
                     : file.samples == 3 ? read_rows<3>(file, raw.get(), image)
                                         : read_rows<4>(file, raw.get(), image);
  if (!whole) return std::nullopt;
  return image;
}

}  // namespace io
