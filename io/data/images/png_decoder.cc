// Decodes PNG with libpng. Its errors return by longjmp, so the functions that call setjmp have no
// objects with destructors.
#include <png.h>

#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "io/base/files/io_error.h"
#include "io/data/images/image_decoder.h"
#include "io/data/images/plain_png.h"

namespace io {
namespace {

struct PngFile {
  const std::uint8_t* next;
  std::size_t left;
  char failure[160];
};

[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  auto& file = *static_cast<PngFile*>(png_get_error_ptr(png));
  std::snprintf(file.failure, sizeof file.failure, "%s", message);
  png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}  // about chunks that are irrelevant here

void on_read(png_structp png, png_bytep out, std::size_t count) {
  auto& file = *static_cast<PngFile*>(png_get_io_ptr(png));
  if (count > file.left) png_error(png, "the file is truncated");
  std::memcpy(out, file.next, count);
  file.next += count;
  file.left -= count;
}

// Reads everything up to the pixels, and requests them as RGB of 8 bits.
bool read_header(png_structp png, png_infop info) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_read_info(png, info);
  png_set_expand(png);    // for palettes, and gray with fewer than 8 bits
  png_set_scale_16(png);  // to 8 bits
  png_set_strip_alpha(png);
  png_set_gray_to_rgb(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
  return true;
}

bool read_rows(png_structp png, png_bytepp rows) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_read_image(png, rows);
  png_read_end(png, nullptr);
  return true;
}

// Owns libpng's structures.
struct PngReader {
  explicit PngReader(PngFile& file)
      : png(png_create_read_struct(PNG_LIBPNG_VER_STRING, &file, on_error, on_warning)) {
    if (png != nullptr) info = png_create_info_struct(png);
    if (info == nullptr) return;
    png_set_read_fn(png, &file, on_read);
    png_set_user_limits(png, 1u << 20,
                        1u << 20);  // rows of some megabytes; make_image() limits the total
  }
  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  png_structp png;
  png_infop info = nullptr;
};

}  // namespace

bool has_png_decoder() { return true; }

DecodedImage decode_png(std::span<const std::uint8_t> bytes, const std::string& path) {
  if (std::optional<DecodedImage> plain = decode_plain_png(bytes, path)) return std::move(*plain);
  PngFile file{bytes.data(), bytes.size(), {}};
  PngReader reader(file);
  if (reader.info == nullptr) throw Error(path + ": libpng failed to initialize");
  if (!read_header(reader.png, reader.info))
    throw DataError(path + ": damaged PNG: " + file.failure);
  DecodedImage image = make_image(png_get_image_width(reader.png, reader.info),
                                  png_get_image_height(reader.png, reader.info), path);
  const std::size_t row = static_cast<std::size_t>(3 * image.width),
                    found = png_get_rowbytes(reader.png, reader.info);
  if (found != row)
    throw DataError(path + ": libpng gives rows of " + std::to_string(found) + " bytes, expected " +
                    std::to_string(row));
  std::vector<png_bytep> rows(static_cast<std::size_t>(image.height));
  for (std::size_t y = 0; y < rows.size(); ++y) rows[y] = image.pixels.data() + y * row;
  if (!read_rows(reader.png, rows.data())) throw DataError(path + ": damaged PNG: " + file.failure);
  return image;
}

}  // namespace io
