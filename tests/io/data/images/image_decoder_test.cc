// PNG and JPEG to pixels, scaling, and every kind of damage.
#include "io/data/images/image_decoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include <jpeglib.h>

#include "io/base/files/io_error.h"
#include "io/base/numbers/split_mix.h"
#include "io/data/images/image_extent.h"
#include "io/data/images/resample.h"
#include "tests/io/data/images/png_bytes.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace io {
namespace {

using test_support::png_bytes;
using test_support::png_chunk;
using test_support::png_word;
using Bytes = std::vector<std::uint8_t>;

DecodedImage decode(const std::string& file) {
  return decode_image({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()},
                      "dir/x.png");
}

std::string complaint(const std::string& file) {
  try {
    decode(file);
  } catch (const DataError& error) {
    EXPECT_EQ(std::string(error.what()).rfind("dir/x.png: ", 0), 0u) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  return "none";
}

std::string jpeg_bytes(int width, int height, int components, J_COLOR_SPACE space,
                       const Bytes& pixels) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &memory, &size);
  jpeg.image_width = static_cast<JDIMENSION>(width);
  jpeg.image_height = static_cast<JDIMENSION>(height);
  jpeg.input_components = components;
  jpeg.in_color_space = space;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 95, TRUE);
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < jpeg.image_height) {
    auto* row = const_cast<JSAMPLE*>(pixels.data() + static_cast<std::size_t>(components * width) *
                                                         jpeg.next_scanline);
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  std::string file(reinterpret_cast<char*>(memory), size);
  std::free(memory);
  return file;
}

Bytes gradient(int width, int height, int channels) {
  Bytes pixels;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c)
        pixels.push_back(static_cast<std::uint8_t>(30 + 3 * x + 2 * y + 20 * c));
  return pixels;
}

TEST(PngDecoder, GivesRgbOfEightBitsWhateverTheFileHas) {
  using namespace test_support;
  const DecodedImage rgb =
      decode(png_bytes(2, 2, kPngRgb, 8, {"\x01\x02\x03\x0A\x0B\x0C", "\xFF\xFE\xFD\x7F\x80\x81"}));
  EXPECT_EQ(rgb.width, 2);
  EXPECT_EQ(rgb.height, 2);
  EXPECT_EQ(rgb.pixels, (Bytes{1, 2, 3, 10, 11, 12, 255, 254, 253, 127, 128, 129}));
  EXPECT_EQ(decode(png_bytes(3, 1, kPngGrey, 8, {"\x05\x06\xF0"})).pixels,
            (Bytes{5, 5, 5, 6, 6, 6, 240, 240, 240}));
  EXPECT_EQ(decode(png_bytes(3, 1, kPngGrey, 1, {"\xA0"})).pixels,
            (Bytes{255, 255, 255, 0, 0, 0, 255, 255, 255}));
  EXPECT_EQ(decode(png_bytes(2, 1, kPngGrey, 4, {"\x1F"})).pixels,
            (Bytes{17, 17, 17, 255, 255, 255}));
  EXPECT_EQ(decode(png_bytes(2, 1, kPngGreyAlpha, 8, {std::string("\x05\x00\x06\xFF", 4)})).pixels,
            (Bytes{5, 5, 5, 6, 6, 6}));
  EXPECT_EQ(decode(png_bytes(1, 1, kPngRgba, 8, {std::string("\x05\x06\x07\x00", 4)})).pixels,
            (Bytes{5, 6, 7}));
  const std::string palette = png_chunk("PLTE", "\x01\x02\x03\x64\x65\x66"),
                    transparent = png_chunk("tRNS", std::string(1, '\0'));
  EXPECT_EQ(decode(png_bytes(2, 1, kPngPalette, 8, {std::string("\x01\x00", 2)}, palette)).pixels,
            (Bytes{100, 101, 102, 1, 2, 3}));
  EXPECT_EQ(decode(png_bytes(2, 1, kPngPalette, 1, {"\x40"}, palette + transparent)).pixels,
            (Bytes{1, 2, 3, 100, 101, 102}));
}

TEST(PngDecoder, SixteenBitsAreRoundedToEight) {
  const std::string row("\x12\x34\x00\xFF\xFF\xFF",
                        6);  // 0x1234 / 257 = 18.13, 0x00FF / 257 = 0.99, 0xFFFF / 257 = 255
  EXPECT_EQ(decode(png_bytes(1, 1, test_support::kPngRgb, 16, {row})).pixels, (Bytes{18, 1, 255}));
}

// A row by a filter of chapter 9 of the PNG specification, byte by byte.
std::string filtered(int filter, const Bytes& row, const Bytes& before, std::size_t pixel) {
  std::string stored(1, static_cast<char>(filter));
  for (std::size_t i = 0; i < row.size(); ++i) {
    const int left = i < pixel ? 0 : row[i - pixel], above = before[i],
              corner = i < pixel ? 0 : before[i - pixel], sum = left + above - corner;
    const int to_left = std::abs(sum - left), to_above = std::abs(sum - above),
              to_corner = std::abs(sum - corner);
    const int nearest = to_left <= to_above && to_left <= to_corner ? left
                        : to_above <= to_corner                     ? above
                                                                    : corner;
    const int predicted[] = {0, left, above, (left + above) / 2, nearest};
    stored += static_cast<char>(row[i] - predicted[filter]);
  }
  return stored;
}

// Rows of all filters in turn, and in one chunk or several.
TEST(PngDecoder, UndoesTheFilterOfEachRow) {
  using namespace test_support;
  SplitMix random(7, 1);
  for (const auto& [colour, samples] : {std::pair{kPngGrey, 1}, std::pair{kPngGreyAlpha, 2},
                                        std::pair{kPngRgb, 3}, std::pair{kPngRgba, 4}}) {
    for (const std::uint32_t width : {1u, 2u, 5u, 16u, 41u}) {
      SCOPED_TRACE(std::to_string(samples) + " samples, width " + std::to_string(width));
      constexpr std::uint32_t kHeight = 23;
      const auto pixel = static_cast<std::size_t>(samples);
      Bytes before(width * pixel), expected;
      std::string stored;
      for (std::uint32_t y = 0; y < kHeight; ++y) {
        Bytes row(before.size());
        // Steps of all sizes: near neighbours and far ones.
        for (std::uint8_t& byte : row) byte = static_cast<std::uint8_t>(random.below(1u << y % 9));
        stored += filtered(static_cast<int>(y % 5), row, before, pixel);
        for (std::size_t x = 0; x < width; ++x)
          for (std::size_t c = 0; c < 3; ++c)
            expected.push_back(row[x * pixel + (samples < 3 ? 0 : c)]);
        before = row;
      }
      for (const std::size_t part : {std::string::npos, std::size_t{7}}) {
        const DecodedImage image =
            decode(png_of_stored(width, kHeight, colour, 8, stored, "", part));
        ASSERT_EQ(image.width, width);
        ASSERT_EQ(image.height, kHeight);
        EXPECT_EQ(image.pixels, expected);
      }
    }
  }
}

TEST(PngDecoder, DamageIsSaidAsLibpngSaysIt) {
  using namespace test_support;
  const std::string good = png_bytes(2, 1, kPngRgb, 8, {"abcdef"});
  std::string sum = good;
  sum[sum.find("IEND") - 5] ^= 1;
  EXPECT_EQ(complaint(sum), "dir/x.png: damaged PNG: IDAT: CRC error");
  EXPECT_EQ(complaint(png_of_stored(2, 1, kPngRgb, 8,
                                    "\x05"
                                    "abcdef")),
            "dir/x.png: damaged PNG: bad adaptive filter value");
  EXPECT_EQ(complaint(png_of_stored(2, 2, kPngRgb, 8, std::string("\0abcdef", 7))),
            "dir/x.png: damaged PNG: Not enough image data");
  EXPECT_EQ(complaint(good.substr(0, good.find("IEND") - 4)),
            "dir/x.png: damaged PNG: the file is truncated");
  EXPECT_EQ(complaint(png_bytes(2, 1, kPngRgb, 8, {"abcdef"}, png_chunk("ABCD", "?"))),
            "dir/x.png: damaged PNG: ABCD: unhandled critical chunk");
}

TEST(JpegDecoder, GivesRgbNearTheOriginal) {
  for (const int channels : {3, 1}) {
    const Bytes pixels = gradient(37, 21, channels);
    const DecodedImage image =
        decode(jpeg_bytes(37, 21, channels, channels == 3 ? JCS_RGB : JCS_GRAYSCALE, pixels));
    ASSERT_EQ(image.width, 37);
    ASSERT_EQ(image.height, 21);
    for (std::size_t i = 0; i < image.pixels.size(); ++i)
      ASSERT_NEAR(image.pixels[i], pixels[channels == 3 ? i : i / 3], 6)
          << "at " << i << " of " << channels;
  }
}

std::string bytes_of_hex(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
  return bytes;
}

// Images of 5 x 3 random pixels, with Adobe's marker.
constexpr std::string_view kCmykJpeg =
    "ffd8ffee000e41646f626500640000000000ffdb004300030202030202030303030403030405080505040405"
    "0a070706080c0a0c0c0b0a0b0b0d0e12100d0e110e0b0b1016101113141515150c0f171816141812141514ff"
    "c000140800030005044311004d11005911004b1100ffc4001600010101000000000000000000000000000605"
    "07ffc40020100002020202030101000000000000000002030104050611120708210014ffda000e0443004d00"
    "59004b00003f0039ec9d7b5e19cc2f1ba4e7762d728bb25749a9a79fbb10c2e95ce4ca65d324524c39929e66"
    "79fb3f2386de30f56fc5be4b2dd2f6c3a8d7b766bec6c4a8abd97d58102a549b23d52611c7769cc471f3b711"
    "c44447e9bec9e2a9e1f65fe34565b01390bc9875b1fe87b05660a096399d98c280580f632999ebf667f6a3ae"
    "6bb86d47c8199c6e3307890c72316b4a2a58c7a6c2900acce69210a168142f905076ebc772e4cbb19114ff00"
    "ffd9";
constexpr std::string_view kYcckJpeg =
    "ffd8ffee000e41646f626500640000000002ffdb004300030202030202030303030403030405080505040405"
    "0a070706080c0a0c0c0b0a0b0b0d0e12100d0e110e0b0b1016101113141515150c0f171816141812141514ff"
    "db00430103040405040509050509140d0b0d1414141414141414141414141414141414141414141414141414"
    "141414141414141414141414141414141414141414141414ffc0001408000300050401220002110103110104"
    "2200ffc400160001010100000000000000000000000000000507ffc400221000010401040203000000000000"
    "000000020103040500061112210713223151ffc4001501010100000000000000000000000000000607ffc400"
    "221100020201010900000000000000000000010203040500061221223142526181ffda000e04010002110311"
    "0400003f009303ccbaba243a211b369c472923997be0c777b491283ae6daedf16c13afcdfed55718c63cc2d0"
    "a8f423668549e3da3c8fad58765b098abd8782cdaab1c9236f12cc8acc798f524127eeb51d39a769b48f902e"
    "6b6b28ea42b98ab6d962248af66434c0357374c82342e81237b8341cb8edccb732e46444ac633fffd9";

// What Pillow 13 makes of the same file with convert("RGB").
TEST(JpegDecoder, HasPillowsBytesOfFourInks) {
  const Bytes cmyk{16,  7,   19,  4,  5,  22,  95,  15, 37,  37, 7,  22, 94, 13,  27,
                   11,  87,  10,  25, 59, 121, 26,  22, 60,  9,  18, 35, 40, 34,  113,
                   202, 141, 215, 70, 58, 51,  122, 40, 149, 18, 25, 16, 40, 144, 50};
  const std::string file = bytes_of_hex(kCmykJpeg);
  EXPECT_EQ(decode(file).pixels, cmyk);
  const std::string unmarked = file.substr(0, 2) + file.substr(18);  // the colors are the same
  EXPECT_EQ(decode(unmarked).pixels, cmyk);
  EXPECT_EQ(decode(bytes_of_hex(kYcckJpeg)).pixels,
            (Bytes{7,   12,  17,  4,  7,  15, 60, 25, 102, 24, 12, 26, 58, 27,  47,
                   46,  58,  75,  43, 48, 88, 36, 22, 47,  22, 13, 23, 70, 43,  52,
                   179, 160, 175, 68, 59, 67, 98, 65, 92,  22, 22, 22, 79, 117, 76}));
}

TEST(JpegDecoder, FourInksCutOffAreErrors) {
  for (const std::string_view text : {kCmykJpeg, kYcckJpeg}) {
    const std::string file = bytes_of_hex(text);
    for (std::size_t size = 1; size + 2 < file.size(); ++size)
      EXPECT_NE(complaint(file.substr(0, size)), "none") << size;
  }
}

TEST(ImageExtent, IsThatOfTheDecodedImage) {
  const test_support::TemporaryDirectory folder;
  const auto extent_of = [&](const std::string& file) {
    test_support::write_text(folder / "x", file);
    const std::optional<ImageExtent> extent = read_image_extent(folder / "x");
    return extent ? std::to_string(extent->width) + " x " + std::to_string(extent->height) : "none";
  };
  const std::string jpeg = jpeg_bytes(37, 21, 3, JCS_RGB, gradient(37, 21, 3));
  EXPECT_EQ(extent_of(jpeg), "37 x 21");
  const std::string comment = std::string("\xFF\xFE\x01\x02", 4) + std::string(256, '\xFF');
  EXPECT_EQ(extent_of(jpeg.substr(0, 2) + comment + "\xFF" + jpeg.substr(2)), "37 x 21");
  EXPECT_EQ(extent_of(bytes_of_hex(kYcckJpeg)), "5 x 3");
  EXPECT_EQ(extent_of(png_bytes(3, 1, test_support::kPngGrey, 8, {"abc"})), "3 x 1");
  EXPECT_EQ(extent_of(jpeg.substr(0, 30)), "none");
  EXPECT_EQ(extent_of("GIF89a, and more than that"), "none");
  EXPECT_FALSE(read_image_extent(folder / "missing").has_value());
}

TEST(ImageDecoder, OtherFilesAreNamed) {
  EXPECT_VALUES(complaint(""), "dir/x.png: empty PNG JPEG");
  EXPECT_VALUES(complaint("GIF89a"), "dir/x.png: PNG JPEG: 47 49 46 38, GIF PNG");
  EXPECT_VALUES(complaint("\x89"), "dir/x.png: PNG JPEG: 89");
}

TEST(ImageDecoder, CutOffFilesAreErrorsWhereverTheyEnd) {
  Bytes noise(40 * 30 * 3);
  SplitMix random(1, 1);
  for (std::uint8_t& byte : noise) byte = static_cast<std::uint8_t>(random.below(256));
  std::vector<std::string> rows;
  for (int y = 0; y < 30; ++y)
    rows.emplace_back(reinterpret_cast<char*>(noise.data()) + 120 * y, 120);
  const std::string png = png_bytes(40, 30, test_support::kPngRgb, 8, rows),
                    jpeg = jpeg_bytes(40, 30, 3, JCS_RGB, noise);
  for (std::size_t size = 1; size < png.size(); size += size < 100 ? 1 : 23)
    EXPECT_NE(complaint(png.substr(0, size)), "none") << size;
  // Without its last two bytes, the end marker, a JPEG is complete.
  for (std::size_t size = 1; size + 2 < jpeg.size(); size += size < 700 ? 1 : 23)
    EXPECT_NE(complaint(jpeg.substr(0, size)), "none") << size;
}

TEST(ImageDecoder, ChangedBytesNeverDoHarm) {
  const Bytes pixels = gradient(24, 16, 3);
  std::vector<std::string> rows;
  for (int y = 0; y < 16; ++y)
    rows.emplace_back(reinterpret_cast<const char*>(pixels.data()) + 72 * y, 72);
  const std::string originals[] = {png_bytes(24, 16, test_support::kPngRgb, 8, rows),
                                   jpeg_bytes(24, 16, 3, JCS_RGB, pixels)};
  SplitMix random(2, 2);
  int refused = 0;
  for (const std::string& original : originals) {
    for (int round = 0; round < 3000; ++round) {
      std::string file = original;
      for (std::uint32_t i = 0; i <= random.below(4); ++i)
        file[random.below(static_cast<std::uint32_t>(file.size()))] =
            static_cast<char>(random.below(256));
      if (random.below(4) == 0) file.resize(random.below(static_cast<std::uint32_t>(file.size())));
      refused += complaint(file) != "none";
    }
  }
  EXPECT_GT(refused, 2500);
}

TEST(ImageDecoder, HugeClaimsAreRefusedBeforeMemoryIsTaken) {
  for (const std::uint32_t side : {20'000u, 60'000u, 0x7FFFFFFFu}) {
    std::string file = png_bytes(1, 1, test_support::kPngRgb, 8, {"abc"});
    const std::string header = png_word(side) + png_word(side) + std::string("\x08\x02\0\0\0", 5);
    file.replace(8, 25, png_chunk("IHDR", header));
    EXPECT_NE(complaint(file), "none") << side;
  }
}

// The definition in float64, a pixel at a time, without rounding in between.
double naive_pixel(const DecodedImage& image, const PixelBox& box, std::int64_t width,
                   std::int64_t height, std::int64_t x, std::int64_t y, int c) {
  const auto weights = [](std::int64_t source, std::int64_t target, std::int64_t at) {
    const double scale = static_cast<double>(source) / static_cast<double>(target),
                 reach = std::max(1.0, scale);
    std::vector<double> all;
    double sum = 0;
    for (std::int64_t k = 0; k < source; ++k) {
      all.push_back(std::max(0.0, 1 - std::abs(static_cast<double>(k) + 0.5 -
                                               (static_cast<double>(at) + 0.5) * scale) /
                                          reach));
      sum += all.back();
    }
    for (double& weight : all) weight /= sum;
    return all;
  };
  const std::vector<double> across = weights(box.width, width, x),
                            down = weights(box.height, height, y);
  double value = 0;
  for (std::int64_t j = 0; j < box.height; ++j)
    for (std::int64_t i = 0; i < box.width; ++i)
      value += down[static_cast<std::size_t>(j)] * across[static_cast<std::size_t>(i)] *
               image.pixels[static_cast<std::size_t>(
                   ((box.top + j) * image.width + box.left + i) * 3 + c)];
  return value;
}

TEST(Resample, IsTheTriangleFilterOfTheDefinition) {
  DecodedImage image{23, 17, Bytes(23 * 17 * 3)};
  SplitMix random(3, 3);
  for (std::uint8_t& byte : image.pixels) byte = static_cast<std::uint8_t>(random.below(256));
  struct Case {
    PixelBox box;
    std::int64_t width, height;
    PixelBox window;
  };
  for (const Case& c :
       {Case{{0, 0, 23, 17}, 8, 6, {0, 0, 8, 6}}, Case{{0, 0, 23, 17}, 50, 31, {3, 5, 20, 11}},
        Case{{5, 2, 11, 9}, 7, 20, {1, 4, 5, 9}}, Case{{22, 16, 1, 1}, 3, 3, {0, 0, 3, 3}}}) {
    Bytes out(static_cast<std::size_t>(c.window.width * c.window.height * 3));
    resample(image, c.box, c.width, c.height, c.window, out);
    std::size_t at = 0;
    for (std::int64_t y = 0; y < c.window.height; ++y)
      for (std::int64_t x = 0; x < c.window.width; ++x)
        for (int channel = 0; channel < 3; ++channel)
          ASSERT_NEAR(out[at++],
                      naive_pixel(image, c.box, c.width, c.height, c.window.left + x,
                                  c.window.top + y, channel),
                      1.01);
  }
}

// What Pillow 13 makes of the same image with resize(..., BILINEAR) and crop(...), as torchvision
// calls it.
TEST(Resample, HasPillowsBytes) {
  DecodedImage image{23, 17, {}};
  for (std::size_t i = 0; i < 23 * 17 * 3; ++i)
    image.pixels.push_back(static_cast<std::uint8_t>(i * 37 + i * i % 101));
  Bytes out(48);
  resize_and_crop(image, 4, out);
  EXPECT_EQ(
      out, (Bytes{128, 110, 128, 135, 139, 139, 140, 127, 112, 117, 115, 123, 135, 110, 120, 127,
                  124, 130, 139, 149, 126, 135, 129, 132, 127, 113, 111, 126, 121, 121, 128, 141,
                  120, 135, 131, 141, 134, 125, 111, 137, 107, 110, 124, 133, 127, 119, 129, 138}));
  Bytes larger(19 * 19 * 3);
  resize_and_crop(image, 19, larger);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < larger.size(); ++i) sum += larger[i] * (i % 251 + 1);
  EXPECT_EQ(sum, 16'687'072u);
}

// Images more than twice as tall as wide are filtered along their height first.
TEST(Resample, HasPillowsBytesOfTallImages) {
  struct Case {
    std::int64_t width, height, size;
    std::uint64_t sum;
  };
  for (const Case& c :
       {Case{7, 53, 4, 144'168}, Case{5, 40, 9, 4'005'320}, Case{20, 41, 6, 753'410},
        Case{20, 40, 6, 753'736}, Case{3, 2000, 2, 10'901}}) {
    DecodedImage image{c.width, c.height, {}};
    for (std::size_t i = 0; i < static_cast<std::size_t>(c.width * c.height * 3); ++i)
      image.pixels.push_back(static_cast<std::uint8_t>(i * 37 + i * i % 101));
    Bytes out(static_cast<std::size_t>(c.size * c.size * 3));
    resize_and_crop(image, c.size, out);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * (i % 251 + 1);
    EXPECT_EQ(sum, c.sum) << c.width << " x " << c.height;
  }
}

TEST(Resample, KeepsWhatNeedsNoScaling) {
  const DecodedImage image{12, 8, gradient(12, 8, 3)};
  Bytes out(8 * 8 * 3);
  resize_and_crop(image, 8, out);  // the middle: columns 2..9
  for (std::size_t y = 0; y < 8; ++y)
    for (std::size_t k = 0; k < 24; ++k) ASSERT_EQ(out[y * 24 + k], image.pixels[y * 36 + 6 + k]);
  const DecodedImage plain{100, 40, Bytes(100 * 40 * 3, 77)};
  resize_and_crop(plain, 8, out);
  EXPECT_EQ(out, Bytes(8 * 8 * 3, 77));
}

}  // namespace
}  // namespace io
