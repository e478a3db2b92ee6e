// Every reader of arrays against systematic and random damage: a DataError or other numbers, never
// a crash, never much memory.
#include <gtest/gtest.h>

#include <random>

#include "io/checkpoint/byte_source.h"
#include "io/interchange/array_files.h"
#include "tests/io/checkpoint/checkpoint_fixture.h"
#include "tests/io/interchange/array_fixture.h"
#include "tests/io/interchange/zip/zip_fixture.h"

namespace {

using array_fixture::Arrays;
using array_fixture::Bytes;

constexpr const char* kDamagedName = "some/file";
constexpr std::size_t kMaxMemory = 64 << 20;

Bytes bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

struct Format {
  std::string name;
  bool summed;  // whether any change must be found
  Bytes file;
};

Arrays small_arrays() {
  Arrays arrays{array_fixture::array_of<float>("conv1.weight", {1, 2, 3, 4, 5, 6}),
                array_fixture::array_of<double>("x", {0.5}),
                array_fixture::array_of<std::int64_t>("bn.num_batches_tracked", {7}),
                array_fixture::array_of<std::uint8_t>("empty", {})};
  arrays[0].shape = {2, 3};
  arrays[2].shape = {};
  return arrays;
}

std::vector<Format> formats() {
  const test_support::TemporaryDirectory folder;
  io::save_arrays(small_arrays(), folder / "a.safetensors");
  io::save_arrays(small_arrays(), folder / "a.npz");
  io::save_arrays(small_arrays(), folder / "a.pth");
  io::Checkpoint checkpoint;
  checkpoint.arrays = small_arrays();
  checkpoint.vocabulary = "abc";
  io::save_checkpoint(checkpoint, folder / "a.ckpt");
  const std::string x = zip_fixture::npy("<f4", "(2,)", "12345678"),
                    turned =
                        zip_fixture::npy_text(
                            "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }\n", 1) +
                        "0123456789abcdef";
  return {{"ckpt", true, io::read_file(folder / "a.ckpt")},
          {"safetensors", false, io::read_file(folder / "a.safetensors")},
          {"npz", false, io::read_file(folder / "a.npz")},
          {"pth", false, io::read_file(folder / "a.pth")},
          {"deflated", false,
           bytes_of(zip_fixture::zip_of({{"x.npy", x}, {"y.npy", turned}}, {.deflate = true}))},
          {"zip64", false,
           bytes_of(zip_fixture::zip_of({{"x.npy", x}, {"y.npy", turned}}, {.zip64 = true}))},
          {"numpy", false, io::read_file(array_fixture::data_file("numpy_stored.npz"))},
          {"torch", false, io::read_file(array_fixture::data_file("torch_ramps.safetensors"))}};
}

// Reads the bytes as any file of arrays would be. Whether they are refused; any other way out fails
// the test.
bool refused(const Bytes& bytes) {
  checkpoint_fixture::reset_largest_allocation();
  bool result = false;
  try {
    static_cast<void>(io::read_arrays(*io::open_arrays(io::memory_bytes(bytes, kDamagedName))));
  } catch (const io::DataError& error) {
    EXPECT_EQ(std::string_view(error.what()).find(kDamagedName), 0u) << error.what();
    result = true;
  }
  EXPECT_LE(checkpoint_fixture::largest_allocation(), 2 * bytes.size() + kMaxMemory);
  return result;
}

TEST(ParserDamage, TheSamplesThemselvesAreAccepted) {
  for (const Format& format : formats()) EXPECT_FALSE(refused(format.file)) << format.name;
}

TEST(ParserDamage, EveryTruncationIsRefused) {
  for (const Format& format : formats())
    for (std::size_t length = 0; length < format.file.size(); ++length)
      EXPECT_TRUE(refused(
          Bytes(format.file.begin(), format.file.begin() + static_cast<std::ptrdiff_t>(length))))
          << format.name << " cut to " << length;
}

TEST(ParserDamage, EverySingleBit) {
  for (const Format& format : formats()) {
    std::size_t found = 0;
    for (std::size_t bit = 0; bit < 8 * format.file.size(); ++bit) {
      Bytes bad = format.file;
      bad[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      const bool caught = refused(bad);
      found += caught;
      EXPECT_TRUE(caught || !format.summed) << format.name << " bit " << bit;
    }
    EXPECT_GT(found, 0u) << format.name;
  }
}

TEST(ParserDamage, BytesAddedRemovedAndDoubled) {
  for (const Format& format : formats()) {
    Bytes longer = format.file;
    longer.push_back(std::byte{0});
    EXPECT_TRUE(refused(longer)) << format.name;
    Bytes twice = format.file;
    twice.insert(twice.end(), format.file.begin(), format.file.end());
    EXPECT_TRUE(refused(twice)) << format.name;
    for (std::size_t at = 0; at < format.file.size(); ++at) {
      Bytes shorter = format.file;
      shorter.erase(shorter.begin() + static_cast<std::ptrdiff_t>(at));
      EXPECT_TRUE(refused(shorter)) << format.name << " without byte " << at;
    }
  }
}

// Each place taken for a length, count or offset in turn.
TEST(ParserDamage, HugeNumbersEverywhere) {
  for (const Format& format : formats()) {
    int found = 0, accepted = 0;
    const auto count = [&](const Bytes& bad) { ++(refused(bad) ? found : accepted); };
    for (std::size_t at = 0; at + 8 <= format.file.size(); ++at)
      for (const std::uint64_t value : {~std::uint64_t{0}, std::uint64_t{1} << 63,
                                        std::uint64_t{1} << 40, std::uint64_t{0x7FFFFFFF}}) {
        Bytes bad = format.file;
        checkpoint_fixture::set(bad, at, value);
        count(bad);
        bad = format.file;
        checkpoint_fixture::set(bad, at, static_cast<std::uint32_t>(value));
        count(bad);
      }
    EXPECT_GT(found, 0) << format.name;
    if (!format.summed) EXPECT_GT(accepted, 0) << format.name << ": values of arrays have no sum";
  }
}

class RandomDamage : public testing::TestWithParam<std::size_t> {};

// Bytes changed, runs moved, cut out and doubled, digits and quotes put in: text headers go on
// parsing for a while then.
TEST_P(RandomDamage, AHundredThousandFiles) {
  const Format format = formats()[GetParam()];
  std::mt19937_64 random(GetParam() + 11);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  constexpr std::string_view kTokens = "0123456789{}[](),:\"'\\ FU<|>fiuO\x00\xff";
  int accepted = 0;
  for (int round = 0; round < 100'000; ++round) {
    Bytes bad = format.file;
    for (std::size_t edits = 1 + below(3); edits > 0 && bad.size() > 16; --edits) {
      const std::size_t at = below(3) == 0
                                 ? below(bad.size())
                                 : below(std::min<std::size_t>(bad.size(), 256));  // headers most
      const std::size_t length = 1 + below(std::min<std::size_t>(8, bad.size() - at));
      const auto place = bad.begin() + static_cast<std::ptrdiff_t>(at);
      switch (below(6)) {
        case 0:
          bad[at] = static_cast<std::byte>(random());
          break;
        case 1:
          bad[at] ^= static_cast<std::byte>(1 << below(8));
          break;
        case 2:
          bad[at] = static_cast<std::byte>(kTokens[below(kTokens.size())]);
          break;
        case 3:
          bad.erase(place, place + static_cast<std::ptrdiff_t>(length));
          break;
        case 4: {
          const Bytes run(place, place + static_cast<std::ptrdiff_t>(length));
          bad.insert(bad.begin() + static_cast<std::ptrdiff_t>(below(bad.size())), run.begin(),
                     run.end());
          break;
        }
        default:
          bad.insert(place, static_cast<std::byte>(kTokens[below(kTokens.size())]));
      }
    }
    accepted += !refused(bad);
  }
  EXPECT_LT(accepted, 100'000);
  RecordProperty("accepted", accepted);
}

INSTANTIATE_TEST_SUITE_P(Formats, RandomDamage, testing::Range<std::size_t>(0, 8),
                         [](const auto& parameter) { return formats()[parameter.param].name; });

}  // namespace
