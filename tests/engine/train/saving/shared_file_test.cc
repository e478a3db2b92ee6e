// A file that rank 0 opens, read by all ranks: whole, across blocks, and when it cannot be read.
#include "engine/train/saving/shared_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/group.h"
#include "io/base/files/io_error.h"
#include "tests/engine/train/trainer_fixture.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

constexpr std::uint64_t kBlock = 1 << 20, kSize = 2 * kBlock + 12345;

std::vector<std::byte> content() {
  std::vector<std::byte> bytes(kSize);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 >> 3);
  return bytes;
}

// A medium whose second block cannot be read.
class Failing final : public io::ByteSource {
 public:
  Failing() : ByteSource("the disk") {}
  std::uint64_t size() const override { return kSize; }
  void read(std::uint64_t offset, std::span<std::byte> target) const override {
    if (offset + target.size() > kBlock) throw io::Error("a bad sector");
    std::memset(target.data(), 1, target.size());
  }
};

// use(rank, file) on each rank of a world of so many.
template <class Open, class Use>
void on_shared_file(int world, const Open& open, const Use& use) {
  trainer_fixture::in_threads(world, [&](backends::Group& group) {
    const auto communicator = group.make_communicator();
    const int rank = communicator->rank();
    const engine::SharedFile file(*communicator, rank == 0 ? open() : nullptr, "a file");
    use(rank, file);
  });
}

TEST(SharedFile, AllRanksReadWhatRankZeroHas) {
  const std::vector<std::byte> expected = content();
  for (const int world : {1, 2, 3})
    on_shared_file(
        world, [&] { return io::memory_bytes(expected, "memory"); },
        [&](int rank, const io::ByteSource& file) {
          ASSERT_EQ(file.size(), kSize) << rank;
          for (const auto& [offset, bytes] : {std::pair{std::uint64_t{0}, std::uint64_t{24}},
                                              {10, kBlock + 10},  // from one block to the next
                                              {kBlock - 1, 2},
                                              {0, kSize},
                                              {kSize - 5, 5},
                                              {kSize, 0}})
            EXPECT_TRUE(std::ranges::equal(file.bytes(offset, bytes),
                                           std::span(expected).subspan(offset, bytes)))
                << "rank " << rank << " of " << world << " at " << offset;
        });
}

TEST(SharedFile, WhatRankZeroCannotReadNoRankHasRead) {
  for (const int world : {1, 3}) {
    std::mutex mutex;
    std::vector<std::string> faults(static_cast<std::size_t>(world));
    on_shared_file(
        world, [] { return std::make_unique<Failing>(); },
        [&](int rank, const io::ByteSource& file) {
          EXPECT_EQ(file.bytes(kBlock - 1, 1).front(), std::byte{1});
          try {
            static_cast<void>(file.bytes(kBlock, 1));
          } catch (const io::Error& error) {
            const std::lock_guard lock(mutex);
            faults[static_cast<std::size_t>(rank)] = error.what();
          }
        });
    for (int rank = 0; rank < world; ++rank)
      EXPECT_VALUES(faults[static_cast<std::size_t>(rank)],
                    rank == 0 ? "a bad sector" : "a file: rank 0");
  }
}

}  // namespace
