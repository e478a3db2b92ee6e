// Files that are large enough for several threads: the same answers as of one, and no damage is
// overlooked.
#include "io/interchange/compare/compare_blocks.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "io/base/machine/cpu_affinity.h"
#include "io/interchange/array_files.h"
#include "io/interchange/compare/compare_arrays.h"
#include "tests/io/interchange/array_fixture.h"
#include "tests/support/time_limits.h"

namespace {

using array_fixture::Arrays;
using array_fixture::MemorySource;

constexpr std::size_t kNumbers = 3'000'001;  // 12 MB, and no whole blocks
constexpr std::size_t kArrays = 7;           // of different sizes

Arrays many_numbers() {
  Arrays arrays;
  for (std::size_t a = 0, left = kNumbers; a < kArrays; ++a) {
    const std::size_t count = a + 1 == kArrays ? left : left / 2;
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>((i * 37 + a) % 1000);
    arrays.push_back(array_fixture::array_of<float>("layer" + std::to_string(a), values));
    left -= count;
  }
  return arrays;
}

std::string save(const test_support::TemporaryDirectory& folder, const std::string& name,
                 const Arrays& arrays) {
  io::Checkpoint checkpoint;
  checkpoint.arrays = arrays;
  io::save_checkpoint(checkpoint, folder / name);
  return folder / name;
}

io::Comparison compare(const std::string& a, const std::string& b) {
  const auto one = io::open_arrays(a), other = io::open_arrays(b);
  return io::compare_arrays({one.get(), other.get()}, {});
}

void flip_byte(const std::string& path, std::uint64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const char byte = static_cast<char>(file.get() ^ 0x10);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
  ASSERT_TRUE(file.good());
}

TEST(CompareBlocks, DifferencesOfLargeArraysAreThoseOfOneThread) {
  const Arrays arrays = many_numbers();
  Arrays other = arrays;
  const auto change = [&](std::size_t array, std::size_t number, float by) {
    auto* values = reinterpret_cast<float*>(other[array].data.data());
    values[number] += by;
  };
  change(0, 1'499'999, 1);
  change(0, 600'000, 2);
  change(0, 70'000, 3);
  change(6, 0, 4);
  const test_support::TemporaryDirectory folder;
  const std::string a = save(folder, "a.ckpt", arrays), b = save(folder, "b.ckpt", other);
  EXPECT_TRUE(compare(a, a).differences.empty());
  const io::Comparison found = compare(a, b);
  EXPECT_EQ(found.compared, static_cast<std::int64_t>(kArrays));
  ASSERT_EQ(found.differences.size(), 2u);
  EXPECT_EQ(found.differences[0].name, "layer0");
  EXPECT_EQ(found.differences[0].values.first_index, 70'000);
  EXPECT_EQ(found.differences[0].values.max_absolute, 3);
  EXPECT_EQ(found.differences[1].name, "layer6");
  EXPECT_EQ(found.differences[1].values.max_absolute, 4);
}

// Where both files have the same wrong byte, only the digests show it.
TEST(CompareBlocks, DamageThatBothFilesHaveIsFoundAnywhere) {
  const test_support::TemporaryDirectory folder;
  const std::string a = save(folder, "a.ckpt", many_numbers()),
                    b = save(folder, "b.ckpt", many_numbers());
  const std::uint64_t size = io::open_arrays(a)->file_bytes();
  for (const std::uint64_t at :
       {size - 4 * kNumbers - 24, size / 3, size / 2, size - 25, size - 24, size - 9}) {
    for (const std::string& path : {a, b}) flip_byte(path, at);
    EXPECT_THROW(compare(a, b), io::DataError) << "byte " << at << " of " << size;
    for (const std::string& path : {a, b}) flip_byte(path, at);
  }
  EXPECT_TRUE(compare(a, b).differences.empty());
}

TEST(CompareBlocks, CheckpointsWithTheirArraysInAnotherOrder) {
  const Arrays arrays = many_numbers(), backwards(arrays.rbegin(), arrays.rend());
  const test_support::TemporaryDirectory folder;
  const std::string a = save(folder, "a.ckpt", arrays), b = save(folder, "b.ckpt", backwards);
  EXPECT_TRUE(compare(a, b).differences.empty());
  const std::uint64_t size = io::open_arrays(b)->file_bytes();
  flip_byte(b, size - 25);  // of layer0, which is not the same in both any more
  EXPECT_THROW(compare(a, b), io::DataError);
  EXPECT_THROW(compare(b, a), io::DataError);
}

// Lets nobody go on reading until two threads do.
class MeetingSource : public MemorySource {
 public:
  using MemorySource::MemorySource;
  bool many_readers() const override { return true; }
  void read(std::size_t index, std::uint64_t offset, std::span<std::byte> target) override {
    std::unique_lock lock(mutex_);
    readers_.insert(std::this_thread::get_id());
    changed_.notify_all();
    if (!changed_.wait_for(lock, test_support::deadline(std::chrono::seconds(20)),
                           [this] { return readers_.size() > 1; }))
      throw std::runtime_error("one thread reads alone");
    MemorySource::read(index, offset, target);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::thread::id> readers_;
};

TEST(CompareBlocks, TwoThreadsReadAtTheSameTime) {
  if (base::count_of_cpus() < 2) GTEST_SKIP() << "one CPU";
  MeetingSource one(many_numbers()), other(many_numbers());
  EXPECT_TRUE(io::compare_arrays({&one, &other}, {}).differences.empty());
}

// Two places cannot be read; whoever comes to one first.
class BrokenSource : public MemorySource {
 public:
  using MemorySource::MemorySource;
  bool many_readers() const override { return true; }
  void read(std::size_t index, std::uint64_t offset, std::span<std::byte> target) override {
    if (index >= 2) throw io::DataError("array " + std::to_string(index) + " cannot be read");
    MemorySource::read(index, offset, target);
  }
};

TEST(CompareBlocks, TheFirstPlaceThatCannotBeReadIsReported) {
  for (int round = 0; round < 20; ++round) {
    BrokenSource one(many_numbers()), other(many_numbers());
    try {
      io::compare_arrays({&one, &other}, {});
      FAIL() << "nothing was thrown";
    } catch (const io::DataError& error) {
      EXPECT_STREQ(error.what(), "array 2 cannot be read");
    }
  }
}

}  // namespace
