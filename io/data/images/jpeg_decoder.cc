// Decodes JPEG with libjpeg(-turbo). Its errors return by longjmp, so the functions that call
// setjmp have no objects with destructors.
#include <csetjmp>
#include <cstddef>
#include <cstdio>

#include <jpeglib.h>

#include <jerror.h>

#include "io/base/files/io_error.h"
#include "io/data/images/image_decoder.h"

namespace io {
namespace {

struct JpegErrors {
  jpeg_error_mgr base;  // the first member: libjpeg passes pointers to it
  std::jmp_buf back;
  char failure[JMSG_LENGTH_MAX];
};

[[noreturn]] void on_error(j_common_ptr jpeg) {
  auto* errors = reinterpret_cast<JpegErrors*>(jpeg->err);
  jpeg->err->format_message(jpeg, errors->failure);
  std::longjmp(errors->back, 1);
}

// For a truncated file, libjpeg only issues a warning and fills the rest with gray. This makes it
// an error.
void on_message(j_common_ptr jpeg, int level) {
  const int code = jpeg->err->msg_code;
  if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER)) on_error(jpeg);
}

void say_nothing(j_common_ptr) {}

bool read_header(jpeg_decompress_struct& jpeg, JpegErrors& errors,
                 std::span<const std::uint8_t> file) {
  if (setjmp(errors.back) != 0) return false;
  jpeg_create_decompress(&jpeg);
  jpeg_mem_src(&jpeg, file.data(), static_cast<unsigned long>(file.size()));
  jpeg_read_header(&jpeg, TRUE);
  return true;
}

// Converts CMYK to RGB as Pillow does: every such JPEG is treated as Adobe's kind, in which 255 is
// no ink. `row` has `width` pixels of both.
void inks_to_rgb(const std::uint8_t* inks, std::uint8_t* row, std::size_t width) {
  for (std::size_t x = 0; x < width; ++x)
    for (std::size_t c = 0; c < 3; ++c) {
      const int light = inks[4 * x + 3];
      const int product = (255 - inks[4 * x + c]) * light + 128;
      row[3 * x + c] = static_cast<std::uint8_t>(light - ((product + (product >> 8)) >> 8));
    }
}

// If the file is CMYK, `inks` has room for a row with four bytes per pixel; otherwise it is null.
bool read_rows(jpeg_decompress_struct& jpeg, JpegErrors& errors, std::uint8_t* inks,
               std::uint8_t* pixels) {
  if (setjmp(errors.back) != 0) return false;
  jpeg.out_color_space = inks != nullptr ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&jpeg);
  while (jpeg.output_scanline < jpeg.output_height) {
    std::uint8_t* to = pixels + std::size_t{3} * jpeg.output_width * jpeg.output_scanline;
    JSAMPROW row = inks != nullptr ? inks : to;
    jpeg_read_scanlines(&jpeg, &row, 1);
    if (inks != nullptr) inks_to_rgb(inks, to, jpeg.output_width);
  }
  jpeg_finish_decompress(&jpeg);
  return true;
}

struct JpegReader {
  JpegReader() {
    jpeg.err = jpeg_std_error(&errors.base);
    errors.base.error_exit = on_error;
    errors.base.emit_message = on_message;
    errors.base.output_message = say_nothing;
  }
  ~JpegReader() {
    jpeg_destroy_decompress(&jpeg);
  }  // allowed before creation, because it is zeroed
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  JpegErrors errors{};
  jpeg_decompress_struct jpeg{};
};

}  // namespace

bool has_jpeg_decoder() { return true; }

DecodedImage decode_jpeg(std::span<const std::uint8_t> file, const std::string& path) {
  JpegReader reader;
  const auto fail = [&] { throw DataError(path + ": damaged JPEG: " + reader.errors.failure); };
  if (!read_header(reader.jpeg, reader.errors, file)) fail();
  const bool four =
      reader.jpeg.jpeg_color_space == JCS_CMYK || reader.jpeg.jpeg_color_space == JCS_YCCK;
  DecodedImage image = make_image(reader.jpeg.image_width, reader.jpeg.image_height, path);
  std::vector<std::uint8_t> inks(four ? std::size_t{4} * reader.jpeg.image_width : 0);
  if (!read_rows(reader.jpeg, reader.errors, four ? inks.data() : nullptr, image.pixels.data()))
    fail();
  return image;
}

}  // namespace io
