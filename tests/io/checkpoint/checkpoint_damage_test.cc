// Damaged, foreign and hostile files: always a DataError that names the file, never a crash or a
// large allocation.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <random>

#include "io/checkpoint/byte_source.h"
#include "tests/io/checkpoint/checkpoint_fixture.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

using namespace checkpoint_fixture;

constexpr const char* kName = "some/file.ckpt";
constexpr std::size_t kLittleMemory = 1 << 20;

class CheckpointDamage : public testing::Test {
 protected:
  void SetUp() override {
    io::save_checkpoint(sample_checkpoint(), folder_ / "a.ckpt");
    good_ = io::read_file(folder_ / "a.ckpt");
  }

  // The fault, which must be a DataError that names the file; "" when the bytes are accepted.
  static std::string fault(const Bytes& bytes) {
    reset_largest_allocation();
    try {
      io::parse_checkpoint(bytes, kName);
    } catch (const io::DataError& error) {
      EXPECT_LT(largest_allocation(), kLittleMemory) << error.what();
      EXPECT_EQ(std::string(error.what()).find(kName), 0u) << error.what();
      return error.what();
    }
    return "";
  }
  // The same for a header with the checksums made right again.
  std::string header_fault(const Bytes& header) const {
    return fault(assemble(header, tensors_of(good_)));
  }
  // Where `text` stands in the header.
  std::size_t place_of(const std::string& text) const {
    const Bytes header = header_of(good_);
    const std::string all(reinterpret_cast<const char*>(header.data()), header.size());
    const std::size_t at = all.find(text);
    EXPECT_NE(at, std::string::npos) << text;
    return at;
  }
  // Of the first array: its name's length stands before the name, then section, type, dimensions
  // ...
  std::size_t entry() const { return place_of("conv1.weight") - 8; }
  static constexpr std::size_t kSection = 8 + 12, kType = kSection + 1, kDimensions = kType + 1,
                               kShape = kDimensions + 8;
  static constexpr std::size_t kDevice = kShape + 4 * 8, kOffset = kDevice + 8 + 6,
                               kBytes = kOffset + 8, kDigest = kBytes + 8;

  test_support::TemporaryDirectory folder_;
  Bytes good_;
};

TEST_F(CheckpointDamage, TheSampleItselfIsAccepted) {
  EXPECT_EQ(fault(good_), "");
  EXPECT_EQ(header_fault(header_of(good_)), "");
}

TEST_F(CheckpointDamage, EveryFlippedByteIsFound) {
  for (std::size_t at = 0; at < good_.size(); ++at)
    for (const int bits : {0x01, 0x80, 0xFF}) {
      Bytes bad = good_;
      bad[at] ^= static_cast<std::byte>(bits);
      EXPECT_NE(fault(bad), "") << "byte " << at;
    }
}

TEST_F(CheckpointDamage, EveryTruncationIsFound) {
  for (std::size_t length = 0; length < good_.size(); ++length)
    EXPECT_NE(fault(Bytes(good_.begin(), good_.begin() + static_cast<std::ptrdiff_t>(length))), "")
        << length;
}

TEST_F(CheckpointDamage, AddedAndMissingAndSwappedBytesAreFound) {
  Bytes longer = good_;
  longer.push_back(std::byte{0});
  EXPECT_CONTAINS(fault(longer), "too long");
  Bytes doubled = good_;
  doubled.insert(doubled.end(), good_.begin(), good_.end());
  EXPECT_NE(fault(doubled), "");
  for (std::size_t at = 0; at + 1 < good_.size(); at += 13) {
    Bytes shorter = good_;
    shorter.erase(shorter.begin() + static_cast<std::ptrdiff_t>(at));
    EXPECT_NE(fault(shorter), "") << at;
    Bytes swapped = good_;
    std::swap(swapped[at], swapped[at + 1]);
    if (swapped != good_) {
      EXPECT_NE(fault(swapped), "") << at;
    }
  }
}

TEST_F(CheckpointDamage, MessagesSayWhatIsWrong) {
  EXPECT_VALUES(fault({}), "checkpoint empty");
  EXPECT_VALUES(fault(Bytes(1000)), "checkpoint first bytes");
  EXPECT_CONTAINS(fault(Bytes(good_.begin(), good_.begin() + 30)), "truncated");
  EXPECT_CONTAINS(fault(Bytes(good_.begin(), good_.end() - 40)), "truncated");
  EXPECT_VALUES(fault(assemble(header_of(good_), tensors_of(good_), 5)), "version 5 1 4");
  for (const std::uint32_t version : {1u, 2u, 3u})  // these end before version 4's last values
    EXPECT_NE(fault(assemble(header_of(good_), tensors_of(good_), version)), "") << version;
  Bytes bad = good_;
  bad[40] ^= std::byte{1};
  EXPECT_CONTAINS(fault(bad), "the header is damaged");
  bad = good_;
  bad[bad.size() - 24 - tensors_of(good_).size()] ^= std::byte{1};
  EXPECT_CONTAINS(fault(bad), "parameter 'conv1.weight' is damaged");
  bad = good_;
  bad[bad.size() - 20] ^= std::byte{1};
  EXPECT_CONTAINS(fault(bad), "damaged (the digest at its end does not match)");
}

TEST_F(CheckpointDamage, ImpossibleSizesInThePreamble) {
  for (const std::uint64_t length :
       {std::uint64_t{1} << 63, ~std::uint64_t{0}, std::uint64_t{100'000'001},
        std::uint64_t{99'999'999}, std::uint64_t{good_.size()}, ~std::uint64_t{0} - 63}) {
    Bytes bad = good_;
    set(bad, 12, length);
    EXPECT_NE(fault(bad), "") << length;
  }
}

// Every place of the header is taken for a length, count or offset in turn.
TEST_F(CheckpointDamage, HugeNumbersAnywhereInTheHeaderTakeNoMemory) {
  const Bytes header = header_of(good_);
  int refused = 0;
  for (std::size_t at = 0; at + 8 <= header.size(); ++at)
    for (const std::uint64_t value :
         {std::uint64_t{1} << 63, ~std::uint64_t{0}, std::uint64_t{1} << 40, std::uint64_t{1} << 30,
          std::uint64_t{header.size()}, std::uint64_t{0}}) {
      Bytes bad = header;
      set(bad, at, value);
      refused += header_fault(bad) != "";
    }
  EXPECT_GT(refused, static_cast<int>(header.size()) * 3);
}

TEST_F(CheckpointDamage, RandomHeadersWithRightChecksums) {
  std::mt19937_64 random(1);
  const Bytes header = header_of(good_);
  constexpr int kRounds = 20'000;
  int refused = 0;
  for (int round = 0; round < kRounds; ++round) {
    Bytes bad = header;
    for (std::size_t flips = 1 + random() % 4; flips > 0; --flips)
      bad[random() % bad.size()] = static_cast<std::byte>(random());
    if (random() % 4 == 0) bad.resize(random() % (bad.size() + 16));
    refused += header_fault(bad) != "";
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, kRounds);  // other numbers are accepted
}

TEST_F(CheckpointDamage, HostileEntries) {
  const Bytes header = header_of(good_);
  const auto with = [&](std::size_t at, std::uint64_t value) {
    Bytes bad = header;
    set(bad, at, value);
    return header_fault(bad);
  };
  const auto with_byte = [&](std::size_t at, int value) {
    Bytes bad = header;
    bad.at(at) = static_cast<std::byte>(value);
    return header_fault(bad);
  };
  ASSERT_EQ(get<std::uint64_t>(header, entry() + kBytes), 4u * 9 * 4);
  EXPECT_CONTAINS(with_byte(entry() + kSection, 0), "unknown section 0");
  EXPECT_CONTAINS(with_byte(entry() + kSection, 7), "unknown section 7");
  EXPECT_CONTAINS(with_byte(entry() + kSection, 3), "optimizer 'conv1.weight' occurs twice");
  EXPECT_CONTAINS(with_byte(entry() + kType, 0), "unknown array type 0");
  EXPECT_CONTAINS(with_byte(entry() + kType, 8), "unknown array type 8");
  EXPECT_VALUES(with_byte(entry() + kType, 2), "'conv1.weight' 144 bytes 288");
  EXPECT_CONTAINS(with(entry() + kShape, ~std::uint64_t{0}), "negative dimension");
  EXPECT_CONTAINS(with(entry() + kShape, std::uint64_t{1} << 62), "invalid size");
  EXPECT_CONTAINS(with(entry() + kOffset, 64), "begins at 64; expected 0");
  EXPECT_CONTAINS(with(entry() + kBytes, 148), "has 148 bytes");
  EXPECT_CONTAINS(with(entry() + kDigest, 0), "is damaged (its digest");
  EXPECT_CONTAINS(with(entry() + kDimensions, 9), "");
  EXPECT_CONTAINS(with_byte(entry() + 8, 0xFF), "array name is not UTF-8");
  EXPECT_CONTAINS(with_byte(entry() + kDevice + 8, 0xC0), "device name is not UTF-8");
  EXPECT_CONTAINS(with_byte(0, 0), "not little-endian");
  EXPECT_CONTAINS(with(1, ~std::uint64_t{0}), "step -1 is negative");
  EXPECT_CONTAINS(with(1 + 3 * 8, 0), "world size 0");
  EXPECT_CONTAINS(with(1 + 6 * 8, header.size()), "the header claims");
  Bytes longer = header;
  longer.push_back(std::byte{0});
  EXPECT_VALUES(header_fault(longer), "1 bytes header");
}

TEST_F(CheckpointDamage, TooManyDimensionsAndOverlongNames) {
  io::Checkpoint c = sample_checkpoint();
  c.arrays.front().shape = {4, 1, 3, 3, 1, 1, 1, 1, 1};
  EXPECT_THROW(io::save_checkpoint(c, folder_ / "b.ckpt"), io::DataError);
  c = sample_checkpoint();
  c.arrays.front().name.assign(4097, 'x');
  EXPECT_THROW(io::save_checkpoint(c, folder_ / "b.ckpt"), io::DataError);
  c.arrays.front().name.assign(4096, 'x');
  io::save_checkpoint(c, folder_ / "b.ckpt");
  EXPECT_EQ(io::load_checkpoint(folder_ / "b.ckpt").arrays.front().name.size(), 4096u);
}

TEST_F(CheckpointDamage, FilesThatAreNoFiles) {
  EXPECT_THROW(io::load_checkpoint(folder_ / "none.ckpt"), io::MissingFileError);
  EXPECT_THROW(io::load_checkpoint(folder_.path().string()), io::DataError);
  EXPECT_THROW(io::load_checkpoint("/dev/zero"), io::DataError);
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(io::load_checkpoint(folder_ / "pipe"), io::DataError);
  test_support::write_text(folder_ / "text.ckpt", "PK\x03\x04 something else");
  EXPECT_VALUES(
      test_support::error_of<io::DataError>([&] { io::load_checkpoint(folder_ / "text.ckpt"); }),
      (folder_ / "text.ckpt") + ": checkpoint first bytes");
}

TEST_F(CheckpointDamage, AForeignFileIsNotReadWhole) {
  test_support::write_text(folder_ / "huge", "GIF89a");
  std::filesystem::resize_file(folder_ / "huge", std::uintmax_t{1} << 40);  // sparse
  reset_largest_allocation();
  EXPECT_THROW(io::load_checkpoint(folder_ / "huge"), io::DataError);
  EXPECT_LT(largest_allocation(), kLittleMemory);
}

}  // namespace
