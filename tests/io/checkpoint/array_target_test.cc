// Arrays that go straight to where they belong: which ones, in which order, and what damage does.
#include "io/checkpoint/array_target.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/checkpoint/byte_source.h"
#include "tests/io/checkpoint/checkpoint_fixture.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

using namespace checkpoint_fixture;

class Taking final : public io::ArrayTarget {
 public:
  void begin(const io::Checkpoint& description) override {
    began_with = static_cast<int>(description.arrays.size());
    if (refuses_run) throw std::runtime_error("not this run's");
  }
  bool wants(const io::NamedArray& array) const override { return array.section == section; }
  void put(const io::NamedArray& array, const io::ArrayRows& rows) override {
    const std::lock_guard lock(mutex_);
    if (array.name == refused_name) throw std::runtime_error("refused " + array.name);
    Bytes& all = taken[array.name];
    const std::size_t row =
        rows.count == 0 ? 0 : rows.data.size() / static_cast<std::size_t>(rows.count);
    const std::size_t at = row * static_cast<std::size_t>(rows.first);
    all.resize(std::max(all.size(), at + rows.data.size()));
    std::ranges::copy(rows.data, all.begin() + static_cast<std::ptrdiff_t>(at));
    rows_of[array.name] += rows.count;
    ++pieces;
    most = std::max(most, rows.data.size());
  }

  io::Section section = io::Section::kParameter;
  bool refuses_run = false;
  std::string refused_name;
  int began_with = -1;
  std::map<std::string, Bytes> taken;
  std::map<std::string, std::int64_t> rows_of;
  std::size_t pieces = 0, most = 0;

 private:
  std::mutex mutex_;
};

class ArrayTarget : public testing::Test {
 protected:
  // Arrays from none to several pieces long, of rows that are longer than a piece and others.
  void SetUp() override {
    saved_ = sample_checkpoint();
    add("scalar", {});
    add("none", {3, 0, 7});
    add("narrow", {70'001, 13});
    add("wide", {3, 2'500'001});
    for (const std::int64_t count : {0, 1, 65536, 700'001, 3})
      add("p" + std::to_string(count), {count});
    io::save_checkpoint(saved_, path_);
  }
  void add(const std::string& name, const std::vector<std::int64_t>& shape) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    io::NamedArray array{.name = name,
                         .section = io::Section::kParameter,
                         .type = base::DType::kU8,
                         .shape = shape,
                         .device = "cpu:0",
                         .data = Bytes(static_cast<std::size_t>(count))};
    for (std::size_t i = 0; i < array.data.size(); ++i)
      array.data[i] = static_cast<std::byte>(i * i >> 3);
    saved_.arrays.push_back(std::move(array));
  }
  std::string fault_of(const Bytes& bytes, Taking& target) const {
    write_bytes(folder_ / "bad.ckpt", bytes);
    return fault_in(folder_ / "bad.ckpt", target);
  }
  static std::string fault_in(const std::string& path, Taking& target) {
    return test_support::error_or<io::DataError>(
        [&] { io::load_checkpoint(*io::open_bytes(path), target); }, "");
  }

  const test_support::TemporaryDirectory folder_;
  const std::string path_ = folder_ / "a.ckpt";
  io::Checkpoint saved_;
};

TEST_F(ArrayTarget, GetsEachRowThatItWantsOnce) {
  Taking target;
  const io::Checkpoint loaded = io::load_checkpoint(*io::open_bytes(path_), target);
  EXPECT_EQ(target.began_with, static_cast<int>(saved_.arrays.size()));
  std::size_t wanted = 0;
  io::Checkpoint rest = saved_;
  for (io::NamedArray& array : rest.arrays)
    if (target.wants(array)) {
      ++wanted;
      ASSERT_EQ(target.taken.count(array.name), 1u) << array.name;
      EXPECT_EQ(target.taken[array.name], array.data) << array.name;
      EXPECT_EQ(target.rows_of[array.name], array.shape.empty() ? 1 : array.shape.front())
          << array.name;
      array.data.clear();
    }
  EXPECT_GE(wanted, 10u);
  EXPECT_EQ(target.taken.size(), wanted);
  EXPECT_GT(target.pieces, wanted);
  EXPECT_EQ(target.most, 2'500'001u);  // a row
  expect_equal(loaded, rest);
}

// Expects what a file that several processes read together needs.
class OneReader final : public io::ByteSource {
 public:
  explicit OneReader(std::unique_ptr<io::ByteSource> file)
      : ByteSource(file->name()), file_(std::move(file)) {}
  std::uint64_t size() const override { return file_->size(); }
  bool many_readers() const override { return false; }
  void read(std::uint64_t offset, std::span<std::byte> into) const override {
    EXPECT_EQ(std::this_thread::get_id(), caller_);
    EXPECT_TRUE(offset == next_ || offset == 0) << offset << " after " << next_;
    next_ = offset + into.size();
    file_->read(offset, into);
  }

 private:
  std::unique_ptr<io::ByteSource> file_;
  std::thread::id caller_ = std::this_thread::get_id();
  mutable std::uint64_t next_ = 0;
};

TEST_F(ArrayTarget, AFileOfOneReaderIsReadByTheCallerInItsOrder) {
  Taking target;
  io::load_checkpoint(OneReader(io::open_bytes(path_)), target);
  for (const auto& [name, bytes] : target.taken)
    EXPECT_EQ(bytes, saved_.find(io::Section::kParameter, name)->data) << name;
}

TEST_F(ArrayTarget, GetsNothingOfARunThatItRefuses) {
  Taking target;
  target.refuses_run = true;
  EXPECT_THROW(io::load_checkpoint(*io::open_bytes(path_), target), std::runtime_error);
  EXPECT_EQ(target.pieces, 0u);
}

TEST_F(ArrayTarget, WhatItThrowsEndsTheLoad) {
  for (const io::NamedArray& array : saved_.arrays) {
    Taking target;
    target.refused_name = array.name;
    if (!target.wants(array)) continue;
    EXPECT_EQ(test_support::error_of<std::runtime_error>(
                  [&] { io::load_checkpoint(*io::open_bytes(path_), target); }),
              "refused " + array.name);
    EXPECT_EQ(target.taken.count(array.name), 0u);
  }
}

// Of the last array, of the padding, of the header and of the digest of the whole.
TEST_F(ArrayTarget, DamageIsToldAlthoughArraysWerePut) {
  const Bytes good = io::read_file(path_);
  Taking before;
  Bytes bad = good;
  bad[bad.size() - 24 - 1] ^= std::byte{1};
  EXPECT_CONTAINS(fault_of(bad, before), "parameter 'p3' is damaged");
  EXPECT_EQ(before.taken.count("p1"), 1u);

  Taking whole;
  bad = good;
  bad[bad.size() - 20] ^= std::byte{1};
  EXPECT_VALUES(fault_of(bad, whole), "damaged digest");
  EXPECT_EQ(whole.taken.count("p3"), 1u);
}

TEST_F(ArrayTarget, EveryPlaceOfDamageIsFound) {
  const Bytes good = io::read_file(path_);
  const std::size_t tensors = good.size() - 24 - tensors_of(good).size();
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  const auto put = [&](std::size_t at, std::byte value) {  // the rest of a large file stays
    file.seekp(static_cast<std::streamoff>(at)).put(static_cast<char>(value)).flush();
    ASSERT_TRUE(file);
  };
  for (std::size_t at = 0; at < good.size(); at += at < tensors + 2000 ? 7 : 400'009) {
    Taking target;
    ASSERT_NO_FATAL_FAILURE(put(at, good[at] ^ std::byte{0x10}));
    EXPECT_NE(fault_in(path_, target), "") << "byte " << at;
    ASSERT_NO_FATAL_FAILURE(put(at, good[at]));
    EXPECT_NE(fault_of(Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(at)), target),
              "")
        << "cut at " << at;
  }
  Taking target;
  EXPECT_EQ(fault_in(path_, target), "");
}

}  // namespace
