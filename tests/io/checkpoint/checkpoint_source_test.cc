// The arrays of a checkpoint, asked for in any order, in pieces and more than once: its digest is
// checked all the same.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "io/base/numbers/split_mix.h"
#include "io/checkpoint/array_source.h"
#include "io/checkpoint/byte_source.h"
#include "tests/io/checkpoint/checkpoint_fixture.h"
#include "tests/support/test_support.h"

namespace {

using checkpoint_fixture::Bytes;

constexpr std::size_t kArrays = 5, kArrayBytes = 400'000;

Bytes checkpoint() {
  const test_support::TemporaryDirectory folder;
  io::Checkpoint checkpoint;
  io::SplitMix random(1, 2, 3);
  for (std::size_t a = 0; a < kArrays; ++a) {
    io::NamedArray array{
        .name = "array" + std::to_string(a), .shape = {kArrayBytes / 4}, .data = {}};
    array.data.resize(kArrayBytes);
    for (std::byte& byte : array.data) byte = static_cast<std::byte>(random.below(100));
    checkpoint.arrays.push_back(std::move(array));
  }
  io::save_checkpoint(checkpoint, folder / "a.ckpt");
  return io::read_file(folder / "a.ckpt");
}

// Many stretches of any array, which overlap.
void read_some(io::ArraySource& source, std::uint64_t seed) {
  io::SplitMix random(seed, 4, 5);
  std::vector<std::byte> target(kArrayBytes);
  for (int i = 0; i < 40; ++i) {
    const std::size_t array = random.below(kArrays), from = random.below(kArrayBytes),
                      bytes = random.below(static_cast<std::uint32_t>(kArrayBytes - from)) + 1;
    // Some go on where others end.
    const std::size_t begin = i % 2 == 0 ? from : from / 100'000 * 100'000;
    source.read(array, begin, std::span(target).first(std::min(bytes, kArrayBytes - begin)));
  }
}

TEST(CheckpointSource, AnyOrderEndsWithTheDigest) {
  const Bytes good = checkpoint();
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const auto source = io::open_checkpoint_arrays(io::memory_bytes(good, "file"));
    read_some(*source, seed);
    EXPECT_NO_THROW(source->finish()) << "seed " << seed;
  }
}

TEST(CheckpointSource, AnyOrderFindsDamage) {
  Bytes bad = checkpoint();
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::size_t at = bad.size() - 24 - kArrays * kArrayBytes + seed * 99'991;
    bad[at] ^= std::byte{1};
    const auto source = io::open_checkpoint_arrays(io::memory_bytes(bad, "file"));
    read_some(*source, seed);
    EXPECT_THROW(source->finish(), io::DataError) << "seed " << seed;
    bad[at] ^= std::byte{1};
  }
}

TEST(CheckpointSource, SeveralThreadsReadAtTheSameTime) {
  const Bytes good = checkpoint();
  for (std::uint64_t round = 0; round < 10; ++round) {
    const auto source = io::open_checkpoint_arrays(io::memory_bytes(good, "file"));
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 4; ++t)
      threads.emplace_back([&source, seed = 4 * round + t] { read_some(*source, seed); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_NO_THROW(source->finish()) << "round " << round;
  }
}

}  // namespace
