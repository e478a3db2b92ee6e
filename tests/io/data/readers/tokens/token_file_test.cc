// Token files of other programs: which kind a file is, and what is said of those that are not read.
#include "io/data/readers/tokens/token_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "io/base/digests/digest.h"
#include "io/base/files/io_error.h"
#include "io/base/numbers/split_mix.h"
#include "io/data/sources/dataset_registry.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace io {
namespace {

std::string number(std::uint64_t value, int bytes, bool big_endian = false) {
  std::string text;
  for (int i = 0; i < bytes; ++i)
    text.push_back(static_cast<char>(value >> (8 * (big_endian ? bytes - 1 - i : i))));
  return text;
}
std::string numbers(const std::vector<std::int32_t>& ids, int bytes, bool big_endian = false) {
  std::string text;
  for (const std::int32_t id : ids)
    text += number(static_cast<std::uint64_t>(id), bytes, big_endian);
  return text;
}
std::string llmc(std::uint32_t magic, std::uint32_t version, std::size_t count,
                 const std::string& ids, bool big_endian = false) {
  std::string header =
      number(magic, 4, big_endian) + number(version, 4, big_endian) + number(count, 4, big_endian);
  header.resize(1024, '\0');
  return header + ids;
}
// As numpy.save writes it.
std::string npy(const std::string& type, const std::string& shape, const std::string& data) {
  std::string text = "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
  text.resize(117, ' ');
  return std::string("\x93NUMPY\x01\x00", 8) + number(118, 2) + text + "\n" + data;
}

std::vector<std::int32_t> some_ids(std::size_t count, std::int32_t highest) {
  std::vector<std::int32_t> ids;
  std::uint64_t state = 1;
  for (std::size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    ids.push_back(
        static_cast<std::int32_t>((state >> 33) % static_cast<std::uint64_t>(highest + 1)));
  }
  return ids;
}

class TokenFiles : public ::testing::Test {
 protected:
  void write(const std::string& content, const std::string& name = "train.bin") {
    test_support::write_text(folder_ / name, content);
  }
  std::vector<std::int32_t> read(int bits = 0) {
    return read_token_file(folder_.path().string(), "train", bits).tokens.all();
  }
  void expect_complaint(const std::vector<std::string>& parts, int bits = 0) {
    const std::string text = test_support::error_of<DataError>([&] { read(bits); });
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    EXPECT_CONTAINS(text, "train.");
    for (const std::string& part : parts) EXPECT_VALUES(text, part);
  }
  test_support::TemporaryDirectory folder_;
};

TEST_F(TokenFiles, HeadersOfLlmcDecideTheWidth) {
  const std::vector<std::int32_t> ids = some_ids(2000, 60);
  write(llmc(20240520, 1, 2000, numbers(ids, 2)));
  EXPECT_EQ(read(), ids);
  EXPECT_EQ(read(16), ids);
  expect_complaint({"ids of 16 bits", "--token-bits is 32"}, 32);
  const std::vector<std::int32_t> wide = some_ids(2000, 128'255);
  write(llmc(20240801, 7, 2000, numbers(wide, 4)));
  EXPECT_EQ(read(), wide);
  expect_complaint({"ids of 32 bits", "--token-bits is 16"}, 16);
  write(llmc(20240801, 7, 2001, numbers(wide, 4)));
  expect_complaint({"found 2000 tokens", "announces 2001"});
}

TEST_F(TokenFiles, OtherFilesOfLlmcAreRefusedByName) {
  const std::string ids = numbers(some_ids(500, 60), 2);
  write(llmc(20240520, 2, 500, ids));
  expect_complaint({"llm.c token file of 16-bit ids of version 2", "expected version 1"});
  write(llmc(20240801, 1, 250, ids));
  expect_complaint({"llm.c token file of 32-bit ids of version 1", "expected version 7"});
  write(llmc(20240522, 1, 500, ids));
  expect_complaint({"llm.c evaluation file token ids"});
  write(llmc(20240326, 3, 500, ids));
  expect_complaint({"llm.c model"});
  write(llmc(20240520, 1, 500, numbers(some_ids(500, 60), 2, true), true));
  expect_complaint({"big-endian", "20240520 backwards", "expected little-endian"});
  write(llmc(20240801, 7, 500, "", true));
  expect_complaint({"big-endian", "20240801 backwards"});
  write(llmc(20240520, 1, 0, "").substr(0, 900));
  expect_complaint({"truncated: found 900 bytes", "header of 1024"});
}

TEST_F(TokenFiles, WiderIdsWithoutAHeaderAreNoticed) {
  for (const std::int32_t highest : {60, 50'256, 128'255, 262'143}) {
    const std::vector<std::int32_t> ids = some_ids(2000, highest);
    write(numbers(ids, 4));
    expect_complaint({"looks like 32-bit ids", "expected 16 bits", "--token-bits 32"});
    EXPECT_EQ(read(32), ids);
    EXPECT_EQ(read(16).size(), 4000u);
    write(numbers(ids, 8));
    expect_complaint({"looks like ", "ids"});
  }
  write(numbers(some_ids(2000, 60), 8));
  expect_complaint({"looks like 64-bit ids", "np.uint16 or np.uint32"});
  write(numbers(some_ids(2000, 60), 4, true));
  expect_complaint({"32-bit ids in big-endian order"});
  write(numbers(some_ids(2000, 120'000), 4, true));
  expect_complaint({"looks like 32-bit", "big-endian order"});
  std::vector<std::int32_t> ignored = some_ids(2000, 300);
  for (std::size_t i = 0; i < ignored.size(); i += 97) ignored[i] = -100;
  write(numbers(ignored, 4));
  expect_complaint({"looks like 32-bit ids", "--token-bits 32"});
  // Ids of 16 bits of every kind of vocabulary.
  for (const std::int32_t highest : {1, 4, 64, 255, 50'256, 65'535}) {
    const std::vector<std::int32_t> ids = some_ids(5000, highest);
    write(numbers(ids, 2));
    EXPECT_EQ(read(), ids) << highest;
  }
  write(numbers(std::vector<std::int32_t>(100, 0), 2));
  EXPECT_EQ(read().size(), 100u);
}

// Read as 16-bit ids, bytes are pairs.
TEST_F(TokenFiles, NarrowerIdsAndTextWithoutAHeaderAreNoticed) {
  for (const std::int32_t highest : {1, 3, 64, 200}) {
    write(numbers(some_ids(8001, highest), 1));
    expect_complaint({"8-bit text 16 bits np.uint16 engine tokenize --token-bits 16"});
    write(numbers(some_ids(8000, highest), 1));
    EXPECT_EQ(read(16).size(), 4000u);
  }
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += "To be, or not to be, that is question " + std::to_string(i);
  write(text);
  expect_complaint({"8-bit text 16 bits np.uint16 engine tokenize --token-bits 16"});
  // A few words over and over, and padding, are 16-bit ids.
  std::vector<std::int32_t> few = some_ids(40, 50'256);
  while (few.size() < 8000) few.push_back(few[few.size() - 40]);
  write(numbers(few, 2));
  EXPECT_EQ(read(), few);
  few = some_ids(1500, 50'256);
  few.resize(20'000, 0);
  write(numbers(few, 2));
  EXPECT_EQ(read(), few);
}

TEST_F(TokenFiles, FloatingPointNumbersAreNoticed) {
  const std::vector<std::int32_t> ids = some_ids(2000, 300);
  const std::vector<float> single(ids.begin(), ids.end());
  const std::vector<double> wide(ids.begin(), ids.end());
  for (const std::span<const std::byte> bytes :
       {std::as_bytes(std::span(single)), std::as_bytes(std::span(wide))}) {
    write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    expect_complaint({"-bit floating-point numbers", "np.uint16 or np.uint32"});
  }
}

TEST_F(TokenFiles, SwappedBytesWithoutAHeaderAreNoticed) {
  for (const std::int32_t highest : {60, 255, 270}) {
    std::vector<std::int32_t> ids = some_ids(2000, highest);
    write(numbers(ids, 2, true));
    expect_complaint({"16-bit big-endian --token-bits 16"});
    EXPECT_EQ(read(16).size(), 2000u);
  }
  // Padding says nothing.
  std::vector<std::int32_t> padded = some_ids(100, 50'256);
  padded.resize(5000, 0);
  write(numbers(padded, 2));
  EXPECT_EQ(read(), padded);
}

TEST_F(TokenFiles, WrongWidthsAndIdsAreNamed) {
  write(numbers(some_ids(2000, 65'535), 2));
  expect_complaint({"token position 0..16777215", "32 bits each"}, 32);
  write(numbers({1, 2, 3}, 4) + "xy");
  expect_complaint({"found 14 bytes", "32-bit tokens"}, 32);
}

TEST_F(TokenFiles, ArraysOfNumpy) {
  const std::vector<std::int32_t> ids = some_ids(1000, 50'256);
  for (const std::string type : {"<u2", "<i4", "<u4", "<i8", "<u8"}) {
    write(npy(type, "(1000,)", numbers(ids, type[2] - '0')), "train.npy");
    EXPECT_EQ(read(), ids) << type;
  }
  const std::string data = numbers(ids, 4);
  write(npy("<u4", "(1001,)", data), "train.npy");
  expect_complaint({"found 1000 tokens", "announces 1001"});
  write(npy("<f4", "(1000,)", data), "train.npy");
  expect_complaint({"dtype '<f4'", "expected whole numbers"});
  write(npy(">u4", "(1000,)", data), "train.npy");
  expect_complaint({"dtype '>u4'", "little-endian"});
  write(npy("<u4", "(10, 100)", data), "train.npy");
  expect_complaint({"shape (10, 100)", "expected one dimension"});
  write(npy("<i4", "(1,)", number(0xFFFFFFFF, 4)), "train.npy");
  expect_complaint({"position 0", "found -1", "expected 0.."});
  write(std::string("\x93NUMPY\x01\x00\xFF\xFF{", 11), "train.npy");
  expect_complaint({".npy header"});
  // The content decides, not the name.
  std::filesystem::remove(folder_ / "train.npy");
  write(npy("<i8", "(1000,)", numbers(ids, 8)));
  EXPECT_EQ(read(), ids);
}

TEST_F(TokenFiles, TwoFilesOfOnePartAreRefused) {
  write(numbers({1, 2, 3}, 2));
  write(numbers({1, 2, 3}, 2), "._train.bin");
  EXPECT_EQ(read().size(), 3u);
  write(numbers({1, 2, 3}, 2), "train.npy");
  expect_complaint({"found both", "train.bin", "train.npy"});
}

TEST_F(TokenFiles, ChangedHeadersNeverDoHarm) {
  const std::vector<std::int32_t> ids = some_ids(300, 60);
  const std::string originals[] = {npy("<u4", "(300,)", numbers(ids, 4)),
                                   llmc(20240801, 7, 300, numbers(ids, 4)).substr(0, 1100)};
  SplitMix random(3, 1);
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string file = originals[round % 2];
    for (std::uint32_t i = 0; i <= random.below(3); ++i)
      file[random.below(128)] = static_cast<char>(random.below(256));
    if (random.below(4) == 0) file.resize(random.below(static_cast<std::uint32_t>(file.size())));
    write(file);
    try {
      EXPECT_LE(read().size(), file.size());
    } catch (const DataError& error) {
      ++refused;
      EXPECT_CONTAINS(error.what(), "train.bin");
    }
  }
  EXPECT_GT(refused, 1000);
}

// More than one block, which ids do not begin with.
TEST_F(TokenFiles, LongFilesAreReadToTheEnd) {
  const std::vector<std::int32_t> ids = some_ids(700'001, 50'256);
  write(npy("<i8", "(700001,)", numbers(ids, 8)), "train.npy");
  EXPECT_EQ(read(), ids);
}

// The file takes disk space only for what is written, and is as large as those of a pre-training.
TEST_F(TokenFiles, LargeFilesStayOnDisk) {
  constexpr std::int64_t kIds = std::int64_t{20} << 30;
  write("");
  std::filesystem::resize_file(folder_ / "train.bin", 2 * kIds);
  TokenStream tokens = read_token_file(folder_.path().string(), "train", 16).tokens;
  EXPECT_EQ(tokens.size(), kIds);
  EXPECT_EQ(tokens.bytes(), 0u);
  EXPECT_TRUE(tokens.is_large());
  tokens.set_limit(5);
  std::vector<std::int32_t> last(3, -1);
  {
    std::fstream file(folder_ / "train.bin", std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(2 * kIds - 4);
    file.write("\4\0\5\0", 4);
  }
  tokens.copy(kIds - 4, last);
  EXPECT_EQ(last, (std::vector<std::int32_t>{0, 0, 4}));
  const std::string error = test_support::error_of<DataError>([&] { tokens.copy(kIds - 3, last); });
  EXPECT_CONTAINS(error, "position " + std::to_string(kIds - 1));
  EXPECT_CONTAINS(error, "found 5, expected 0..4");
}

TEST_F(TokenFiles, TheDigestOfLargeFilesNoticesOtherIdsAtBothEnds) {
  const auto digest = [&](std::int64_t at) {
    write("");
    std::filesystem::resize_file(folder_ / "train.bin", std::int64_t{1} << 30);
    std::fstream file(folder_ / "train.bin", std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(at);
    file.write("\7", 1);
    file.close();
    base::StreamDigest sum;
    read_token_file(folder_.path().string(), "train", 16).tokens.add_to(sum);
    return base::hex_text(sum.value());
  };
  const std::string first = digest(0), last = digest((std::int64_t{1} << 30) - 2);
  EXPECT_NE(first, last);
  EXPECT_EQ(first, digest(0));
}

TEST_F(TokenFiles, AFileThatHasBecomeShorterIsNamed) {
  write(numbers(some_ids(5000, 100), 2));
  const TokenStream tokens = read_token_file(folder_.path().string(), "train", 16).tokens;
  std::filesystem::resize_file(folder_ / "train.bin", 5000);
  std::vector<std::int32_t> ids(100);
  tokens.copy(2400, ids);
  const std::string error = test_support::error_of<DataError>([&] { tokens.copy(2450, ids); });
  EXPECT_VALUES(error, "train.bin: shorter 5000 bytes, 5100");
}

}  // namespace
}  // namespace io
