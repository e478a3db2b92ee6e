// Arrays that go straight to where they belong: which ones, in which order, and what damage does.
#include "io/checkpoint/array_target.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/io/checkpoint/snapshot_fixture.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

using namespace snapshot_fixture;

class Taking final : public io::ArrayTarget {
 public:
  void begin(const io::Checkpoint& description) override {
    began_with = static_cast<int>(description.arrays.size());
    if (refuses_run) throw std::runtime_error("not this run's");
  }
  bool wants(const io::NamedArray& array) const override { return array.section == section; }
  void put(const io::NamedArray& array, std::span<const std::byte> data) override {
    const std::lock_guard lock(mutex_);
    if (array.name == refused_name) throw std::runtime_error("refused " + array.name);
    names.push_back(array.name);
    taken[array.name].assign(data.begin(), data.end());
  }

  io::Section section = io::Section::kParameter;
  bool refuses_run = false;
  std::string refused_name;
  int began_with = -1;
  std::vector<std::string> names;
  std::map<std::string, Bytes> taken;

 private:
  std::mutex mutex_;
};

class ArrayTarget : public testing::Test {
 protected:
  // Arrays from none to several pieces long.
  void SetUp() override {
    saved_ = sample_checkpoint();
    for (const std::int64_t count : {0, 1, 65536, 700'001, 3}) {
      io::NamedArray array{.name = "p" + std::to_string(count),
                           .section = io::Section::kParameter,
                           .type = base::DType::kU8,
                           .shape = {count},
                           .device = "cpu:0",
                           .data = Bytes(static_cast<std::size_t>(count))};
      for (std::size_t i = 0; i < array.data.size(); ++i)
        array.data[i] = static_cast<std::byte>(i * i >> 3);
      saved_.arrays.push_back(std::move(array));
    }
    io::save_checkpoint(saved_, path_);
  }
  std::string fault_of(const Bytes& bytes, Taking& target) const {
    write_bytes(folder_ / "bad.ckpt", bytes);
    try {
      io::load_checkpoint(*io::open_bytes(folder_ / "bad.ckpt"), target);
    } catch (const io::DataError& error) {
      return error.what();
    }
    return "";
  }

  const test_support::TemporaryDirectory folder_;
  const std::string path_ = folder_ / "a.ckpt";
  io::Checkpoint saved_;
};

TEST_F(ArrayTarget, GetsEachArrayThatItWantsOnce) {
  Taking target;
  const io::Checkpoint loaded = io::load_checkpoint(*io::open_bytes(path_), target);
  EXPECT_EQ(target.began_with, static_cast<int>(saved_.arrays.size()));
  std::vector<std::string> wanted;
  io::Checkpoint rest = saved_;
  for (io::NamedArray& array : rest.arrays)
    if (target.wants(array)) {
      wanted.push_back(array.name);
      EXPECT_EQ(target.taken[array.name], array.data) << array.name;
      array.data.clear();
    }
  EXPECT_GE(wanted.size(), 6u);
  std::ranges::sort(wanted);
  std::ranges::sort(target.names);
  EXPECT_EQ(target.names, wanted);
  expect_equal(loaded, rest);
}

TEST_F(ArrayTarget, GetsNothingOfARunThatItRefuses) {
  Taking target;
  target.refuses_run = true;
  EXPECT_THROW(io::load_checkpoint(*io::open_bytes(path_), target), std::runtime_error);
  EXPECT_TRUE(target.names.empty());
}

TEST_F(ArrayTarget, WhatItThrowsEndsTheLoad) {
  for (const io::NamedArray& array : saved_.arrays) {
    Taking target;
    target.refused_name = array.name;
    if (!target.wants(array)) continue;
    try {
      io::load_checkpoint(*io::open_bytes(path_), target);
      ADD_FAILURE() << array.name;
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(std::string(error.what()), "refused " + array.name);
    }
    EXPECT_EQ(std::ranges::count(target.names, array.name), 0);
  }
}

// Of the last array, of the padding, of the header and of the digest of the whole.
TEST_F(ArrayTarget, DamageIsToldAlthoughArraysWerePut) {
  const Bytes good = io::read_file(path_);
  Taking before;
  Bytes bad = good;
  bad[bad.size() - 24 - 1] ^= std::byte{1};
  EXPECT_CONTAINS(fault_of(bad, before), "parameter 'p3' is damaged");
  EXPECT_EQ(before.taken.count("p3"), 0u);
  EXPECT_EQ(before.taken.count("p1"), 1u);

  Taking whole;
  bad = good;
  bad[bad.size() - 20] ^= std::byte{1};
  EXPECT_CONTAINS(fault_of(bad, whole), "damaged (the digest of the whole file");
  EXPECT_EQ(whole.taken.count("p3"), 1u);
}

TEST_F(ArrayTarget, EveryPlaceOfDamageIsFound) {
  const Bytes good = io::read_file(path_);
  const std::size_t tensors = good.size() - 24 - tensors_of(good).size();
  for (std::size_t at = 0; at < good.size(); at += at < tensors + 2000 ? 7 : 40'009) {
    Taking target;
    Bytes bad = good;
    bad[at] ^= std::byte{0x10};
    EXPECT_NE(fault_of(bad, target), "") << "byte " << at;
    bad.resize(at);
    EXPECT_NE(fault_of(bad, target), "") << "cut at " << at;
  }
}

}  // namespace
