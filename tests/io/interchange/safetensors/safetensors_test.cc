// Safetensors: files made here byte by byte, what the format forbids, and our own writer read back.
#include "io/interchange/safetensors/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "io/checkpoint/byte_source.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

using Bytes = std::vector<std::byte>;

constexpr const char* kSafetensorsName = "some/file.safetensors";

Bytes file_of(const std::string& header, std::size_t data_bytes) {
  Bytes bytes(8 + header.size() + data_bytes);
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(header.size() >> (8 * i));
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  for (std::size_t i = 0; i < data_bytes; ++i)
    bytes[8 + header.size() + i] = static_cast<std::byte>(i + 1);
  return bytes;
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

std::vector<io::NamedArray> parsed_safetensors(const Bytes& bytes) {
  return io::read_arrays(*io::open_safetensors(io::memory_bytes(bytes, kSafetensorsName)));
}

std::vector<io::NamedArray> loaded_safetensors(const std::string& path) {
  return io::read_arrays(*io::open_safetensors(io::open_bytes(path)));
}

// The fault, which must be a DataError that names the file; "" when the bytes are
// accepted.
std::string safetensors_fault(const Bytes& bytes) {
  try {
    parsed_safetensors(bytes);
  } catch (const io::DataError& error) {
    EXPECT_EQ(std::string(error.what()).find(kSafetensorsName), 0u) << error.what();
    return error.what();
  }
  return "";
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirData) {
  const auto arrays = parsed_safetensors(file_of(
      "{\"__metadata__\":{\"format\":\"pt\"}," + entry("fc.weight", "F32", "[2,1]", "[4,12]") +
          " , " + entry("a\\\"b\\u00e9\\ud83d\\ude00", "U8", "[4]", "[0,4]") + "}  ",
      12));
  ASSERT_EQ(arrays.size(), 2u);
  EXPECT_EQ(arrays[0].name, "a\"b\xc3\xa9\xf0\x9f\x98\x80");
  EXPECT_EQ(arrays[0].type, base::DType::kU8);
  EXPECT_EQ(arrays[0].data, (Bytes{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}}));
  EXPECT_EQ(arrays[1].name, "fc.weight");
  EXPECT_EQ(arrays[1].section, io::Section::kParameter);
  EXPECT_EQ(arrays[1].shape, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(arrays[1].data.size(), 8u);
}

TEST(Safetensors, EveryTypeScalarsAndEmptyTensors) {
  const std::pair<const char*, base::DType> types[] = {
      {"F32", base::DType::kF32},   {"F64", base::DType::kF64}, {"F16", base::DType::kF16},
      {"BF16", base::DType::kBF16}, {"I64", base::DType::kI64}, {"I32", base::DType::kI32},
      {"U8", base::DType::kU8}};
  for (const auto& [name, type] : types) {
    const std::size_t size = base::size_of(type);
    const auto arrays = parsed_safetensors(
        file_of("{" + entry("x", name, "[]", "[0," + std::to_string(size) + "]") + "," +
                    entry("none", name, "[0,3]",
                          "[" + std::to_string(size) + "," + std::to_string(size) + "]") +
                    "}",
                size));
    ASSERT_EQ(arrays.size(), 2u);
    EXPECT_EQ(arrays[0].type, type);
    EXPECT_TRUE(arrays[0].shape.empty());
    EXPECT_TRUE(arrays[1].data.empty());
  }
  EXPECT_TRUE(parsed_safetensors(file_of("{}", 0)).empty());
}

TEST(Safetensors, MetadataMayBeLong) {
  const std::string text = "{\"__metadata__\":{\"notes\":\"" + std::string(100'000, 'x') + "\"}}";
  EXPECT_EQ(safetensors_fault(file_of(text, 0)), "");
}

TEST(Safetensors, MalformedHeadersAreRefused) {
  const std::string good = entry("x", "U8", "[4]", "[0,4]");
  ASSERT_EQ(safetensors_fault(file_of("{" + good + "}", 4)), "");
  const std::string bad[] = {
      "",
      "[]",
      "null",
      " {" + good + "}",
      "{" + good,
      "{" + good + ",}",
      "{," + good + "}",
      "{" + good + "}x",
      "{" + good + "}{}",
      "{" + good + " " + entry("y", "U8", "[0]", "[4,4]") + "}",
      "{x:1}",
      "{\"x\":1}",
      "{\"x\":[]}",
      "{\"x\":{}}",
      "{\"x\":{\"dtype\":\"U8\",\"shape\":[4]}}",
      "{\"x\":{\"dtype\":\"U8\",\"data_offsets\":[0,4]}}",
      "{\"x\":{\"shape\":[4],\"data_offsets\":[0,4]}}",
      "{\"x\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
      "{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4],\"extra\":1}}",
      "{\"x\":{\"dtype\":8,\"shape\":[4],\"data_offsets\":[0,4]}}",
      "{" + entry("x", "U8", "4", "[0,4]") + "}",
      "{" + entry("x", "U8", "[-4]", "[0,4]") + "}",
      "{" + entry("x", "U8", "[4.0]", "[0,4]") + "}",
      "{" + entry("x", "U8", "[4e0]", "[0,4]") + "}",
      "{" + entry("x", "U8", "[04]", "[0,4]") + "}",
      "{" + entry("x", "U8", "[4,]", "[0,4]") + "}",
      "{" + entry("x", "U8", "[[4]]", "[0,4]") + "}",
      "{" + entry("x", "U8", "[99999999999999999999]", "[0,4]") + "}",
      "{" + entry("x", "U8", "[4]", "[0]") + "}",
      "{" + entry("x", "U8", "[4]", "[0,4,4]") + "}",
      "{" + entry("x", "U8", "[4]", "[0,\"4\"]") + "}",
      "{" + entry("x\n", "U8", "[4]", "[0,4]") + "}",
      "{" + entry("x\\q", "U8", "[4]", "[0,4]") + "}",
      "{" + entry("x\\u12g4", "U8", "[4]", "[0,4]") + "}",
      "{" + entry("\\ud800", "U8", "[4]", "[0,4]") + "}",
      "{" + entry("\\udc00", "U8", "[4]", "[0,4]") + "}",
      "{" + entry("\\ud800\\u0041", "U8", "[4]", "[0,4]") + "}",
      "{" + entry("x\xff", "U8", "[4]", "[0,4]") + "}",
      "{" + entry(std::string(4097, 'x'), "U8", "[4]", "[0,4]") + "}",
      "{" + entry("x", "U8", "[1,1,1,1,1,1,1,1,4]", "[0,4]") + "}",
      "{\"x",
      "{\"x\\",
      "{\"__metadata__\":[]," + good + "}",
      "{\"__metadata__\":{\"a\":1}," + good + "}",
      "{\"__metadata__\":{},\"__metadata__\":{}," + good + "}",
      std::string(50'000, '{'),
      "{\"x\":" + std::string(50'000, '['),
  };
  for (const std::string& header : bad)
    EXPECT_NE(safetensors_fault(file_of(header, 4)), "") << header.substr(0, 100);
}

TEST(Safetensors, OverlapsHolesAndWrongSizesAreRefused) {
  const auto two = [](const std::string& first, const std::string& second) {
    return "{" + first + "," + second + "}";
  };
  const auto x = [](const std::string& shape, const std::string& offsets) {
    return entry("x", "U8", shape, offsets);
  };
  const auto y = [](const std::string& shape, const std::string& offsets) {
    return entry("y", "U8", shape, offsets);
  };
  EXPECT_NE(safetensors_fault(file_of(two(x("[4]", "[0,4]"), y("[4]", "[2,6]")), 6))
                .find("expected to start at 4"),
            std::string::npos);
  EXPECT_NE(safetensors_fault(file_of(two(x("[4]", "[0,4]"), y("[4]", "[0,4]")), 4)), "");
  EXPECT_NE(safetensors_fault(file_of(two(x("[4]", "[0,4]"), y("[4]", "[5,9]")), 9))
                .find("expected to start at 4"),
            std::string::npos);
  EXPECT_NE(
      safetensors_fault(file_of(two(x("[4]", "[0,4]"), x("[4]", "[4,8]")), 8)).find("stands twice"),
      std::string::npos);
  EXPECT_NE(safetensors_fault(file_of("{" + x("[4]", "[1,5]") + "}", 5)), "");
  EXPECT_NE(safetensors_fault(file_of("{" + x("[4]", "[4,0]") + "}", 4)), "");
  EXPECT_NE(safetensors_fault(file_of("{" + x("[4]", "[0,4]") + "}", 3)).find("to end by 3"),
            std::string::npos);
  EXPECT_VALUES(safetensors_fault(file_of("{" + x("[4]", "[0,4]") + "}", 5)), ": 1 bytes tensor");
  EXPECT_VALUES(safetensors_fault(file_of("{" + x("[3]", "[0,4]") + "}", 4)), "4 bytes 3");
  EXPECT_NE(safetensors_fault(file_of("{" + x("[4294967296,4294967296]", "[0,0]") + "}", 0))
                .find("overflows"),
            std::string::npos);
  EXPECT_NE(
      safetensors_fault(file_of("{" + entry("x", "F64", "[2305843009213693952]", "[0,0]") + "}", 0))
          .find("overflows"),
      std::string::npos);
  EXPECT_NE(safetensors_fault(file_of("{" + entry("x", "F8_E4M3", "[4]", "[0,4]") + "}", 4))
                .find("has dtype F8_E4M3; known are"),
            std::string::npos);
  EXPECT_NE(safetensors_fault(file_of("{" + entry("x", "f32", "[1]", "[0,4]") + "}", 4)), "");
}

// Masks and indices beside the weights: no model needs them.
TEST(Safetensors, TypesThatNoModelHasAreNamedAndNotRead) {
  const Bytes bytes = file_of("{" + entry("mask", "BOOL", "[4]", "[0,4]") + "," +
                                  entry("w", "F32", "[1]", "[4,8]") + "," +
                                  entry("ids", "I16", "[2]", "[8,12]") + "}",
                              12);
  const auto source = io::open_safetensors(io::memory_bytes(bytes, kSafetensorsName));
  ASSERT_EQ(source->entries().size(), 1u);
  EXPECT_EQ(source->entries()[0].name, "w");
  ASSERT_EQ(source->unread().size(), 2u);
  EXPECT_EQ(source->unread()[0].name + " " + source->unread()[0].type, "mask BOOL");
  EXPECT_EQ(source->unread()[1].name + " " + source->unread()[1].type, "ids I16");
  EXPECT_EQ(io::read_arrays(*source).at(0).data,
            (Bytes{std::byte{5}, std::byte{6}, std::byte{7}, std::byte{8}}));
}

TEST(Safetensors, ImpossibleHeaderLengthsAreRefused) {
  EXPECT_NE(safetensors_fault({}), "");
  EXPECT_NE(safetensors_fault(Bytes(7)), "");
  for (const std::uint64_t length :
       {std::uint64_t{3}, std::uint64_t{100'000'001}, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    Bytes bytes = file_of("{}", 0);
    for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(length >> (8 * i));
    EXPECT_NE(safetensors_fault(bytes), "") << length;
  }
}

std::vector<io::NamedArray> sample_arrays() {
  std::vector<io::NamedArray> arrays(3);
  arrays[0] = {"z \"quoted\" \\ \n",   io::Section::kParameter, base::DType::kF32, {2, 3}, "cpu:0",
               Bytes(24, std::byte{7})};
  arrays[1] = {"bn.running_mean", io::Section::kBuffer,  base::DType::kBF16, {3},
               "cuda:1",          Bytes(6, std::byte{9})};
  arrays[2] = {"count", io::Section::kBuffer,  base::DType::kI64, {},
               "cpu:0", Bytes(8, std::byte{1})};
  return arrays;
}

TEST(Safetensors, WriterReadsBackInOrder) {
  const test_support::TemporaryDirectory folder;
  const auto saved = sample_arrays();
  io::save_safetensors(saved, folder / "a.safetensors");
  const auto loaded = loaded_safetensors(folder / "a.safetensors");
  ASSERT_EQ(loaded.size(), saved.size());
  for (std::size_t i = 0; i < saved.size(); ++i) {
    EXPECT_EQ(loaded[i].name, saved[i].name);
    EXPECT_EQ(loaded[i].type, saved[i].type);
    EXPECT_EQ(loaded[i].shape, saved[i].shape);
    EXPECT_EQ(loaded[i].data, saved[i].data);
  }
  const std::string text = test_support::read_text(folder / "a.safetensors");
  EXPECT_EQ(static_cast<unsigned char>(text[0]) % 8, 0);  // data begins at a multiple of 8
  io::save_safetensors({}, folder / "none.safetensors");
  EXPECT_TRUE(loaded_safetensors(folder / "none.safetensors").empty());
}

TEST(Safetensors, WriterRefusesWhatItWouldNotRead) {
  const test_support::TemporaryDirectory folder;
  auto twice = sample_arrays();
  twice.push_back(twice.front());
  auto short_data = sample_arrays();
  short_data[0].data.pop_back();
  auto binary_name = sample_arrays();
  binary_name[0].name = "\xff";
  auto reserved = sample_arrays();
  reserved[0].name = "__metadata__";
  for (const auto& arrays : {twice, short_data, binary_name, reserved})
    EXPECT_THROW(io::save_safetensors(arrays, folder / "a.safetensors"), io::DataError);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THROW(io::save_safetensors(sample_arrays(), folder / "none/a.safetensors"),
               io::CannotCreateError);
}

TEST(Safetensors, DamagedFilesNeverCrash) {
  const test_support::TemporaryDirectory folder;
  io::save_safetensors(sample_arrays(), folder / "a.safetensors");
  const Bytes good = io::read_file(folder / "a.safetensors");
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_NE(
        safetensors_fault(Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length))),
        "")
        << length;
  std::mt19937 random(3);
  constexpr int kRounds = 20'000;
  int refused = 0;
  for (int round = 0; round < kRounds; ++round) {
    Bytes bad = good;
    for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips)
      bad[random() % bad.size()] = static_cast<std::byte>(random());
    refused += safetensors_fault(bad) != "";
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, kRounds);  // other names and numbers are accepted
}

TEST(Safetensors, MissingFilesAndFolders) {
  const test_support::TemporaryDirectory folder;
  EXPECT_THROW(loaded_safetensors(folder / "none"), io::MissingFileError);
  EXPECT_THROW(loaded_safetensors(folder.path().string()), io::DataError);
}

}  // namespace
