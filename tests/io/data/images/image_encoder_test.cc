// PNG files of pixels read back as those pixels.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/data/images/image_decoder.h"
#include "io/data/images/image_encoder.h"

namespace {

TEST(ImageEncoder, PixelsReadBack) {
  for (const std::int64_t channels : {1, 3}) {
    std::vector<std::uint8_t> pixels;
    for (std::int64_t i = 0; i < 5 * 7 * channels; ++i)
      pixels.push_back(static_cast<std::uint8_t>(37 * i));
    const std::string file = io::encode_png(pixels, 5, 7, channels);
    const io::DecodedImage image = io::decode_image(
        std::span(reinterpret_cast<const std::uint8_t*>(file.data()), file.size()), "x");
    EXPECT_EQ(image.height, 5);
    EXPECT_EQ(image.width, 7);
    ASSERT_EQ(image.pixels.size(), 105u);
    for (std::size_t i = 0; i < 105; ++i)
      EXPECT_EQ(image.pixels[i], pixels[channels == 3 ? i : i / 3]) << channels << ", " << i;
  }
}

TEST(ImageEncoder, RefusesWhatIsNoPicture) {
  const std::vector<std::uint8_t> pixels(12);
  EXPECT_THROW(io::encode_png(pixels, 2, 3, 2), io::ConfigError);
  EXPECT_THROW(io::encode_png(pixels, 2, 3, 1), io::ConfigError);
}

}  // namespace
