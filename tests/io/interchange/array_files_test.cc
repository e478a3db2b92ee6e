// Formats told by content, ways from one format to another, and halves.
#include "io/interchange/array_files.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/io/interchange/array_fixture.h"
#include "tests/support/expect_contains.h"

namespace {

using array_fixture::array_of;
using array_fixture::Arrays;
using array_fixture::data_file;
using array_fixture::values_of;

std::string refusal(const std::string& path) {
  try {
    io::open_arrays(path);
  } catch (const io::DataError& error) {
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    return error.what();
  }
  return "";
}

Arrays odd_arrays() {
  Arrays arrays{array_of<float>("conv.weight",
                                {1, -0.0f, std::nanf("7"), std::numeric_limits<float>::infinity()}),
                array_of<float>("bn.running_mean", {1e-40f}, io::Section::kBuffer),
                array_of<std::int64_t>("bn.num_batches_tracked", {7}, io::Section::kBuffer)};
  arrays[0].shape = {2, 1, 2};
  arrays[2].shape = {};
  return arrays;
}

TEST(ArrayFiles, RoundTripsKeepEveryBit) {
  const test_support::TemporaryDirectory folder;
  for (const char* name : {"a.safetensors", "a.npz", "a.pth", "a.pt"}) {
    io::save_arrays(odd_arrays(), folder / name);
    const Arrays loaded = io::load_arrays(folder / name);
    array_fixture::expect_same(loaded, odd_arrays());
    EXPECT_EQ(loaded[0].section, io::Section::kParameter);
    EXPECT_EQ(loaded[1].section, io::Section::kBuffer);
    EXPECT_EQ(loaded[2].section, io::Section::kBuffer);
  }
  io::Checkpoint checkpoint;
  checkpoint.arrays = odd_arrays();
  checkpoint.arrays[0].device = "cuda:1";
  io::save_checkpoint(checkpoint, folder / "a.ckpt");
  array_fixture::expect_same(io::load_arrays(folder / "a.ckpt"), odd_arrays());
  EXPECT_EQ(io::load_arrays(folder / "a.ckpt")[0].device, "cuda:1");
  array_fixture::expect_same(io::read_arrays(*io::open_arrays(folder / "a.ckpt")), odd_arrays());
  EXPECT_THROW(io::save_arrays(odd_arrays(), folder / "a.bin"), io::ConfigError);
}

TEST(ArrayFiles, ContentTellsTheFormatNotTheName) {
  const test_support::TemporaryDirectory folder;
  io::save_arrays(odd_arrays(), folder / "a.safetensors");
  io::save_arrays(odd_arrays(), folder / "a.npz");
  io::save_arrays(odd_arrays(), folder / "c.npz", io::ArrayFormat::kPth);
  array_fixture::expect_same(io::load_arrays(folder / "c.npz"), odd_arrays());
  std::filesystem::rename(folder / "a.npz", folder / "b.safetensors");
  std::filesystem::rename(folder / "a.safetensors", folder / "b.ckpt");
  array_fixture::expect_same(io::load_arrays(folder / "b.safetensors"), odd_arrays());
  array_fixture::expect_same(io::load_arrays(folder / "b.ckpt"), odd_arrays());
}

TEST(ArrayFiles, WhatIsNoFileOfArraysIsToldApart) {
  const test_support::TemporaryDirectory folder;
  const auto written = [&](const std::string& content) {
    test_support::write_text(folder / "x", content);
    return refusal(folder / "x");
  };
  const std::string pickle = "pickle without archive";
  EXPECT_VALUES(written(""), "empty");
  EXPECT_VALUES(written("\x80\x02}q\x01."), pickle);
  EXPECT_VALUES(written("\x80\x05\x95 and more of it"), "pickle");
  EXPECT_VALUES(written("\x93NUMPY\x01"), ".npy array");
  EXPECT_VALUES(written("#!/bin/sh\necho hello\n"), "neither checkpoint");
  EXPECT_VALUES(written("\x7f"
                        "ELF"),
                "neither checkpoint");
  EXPECT_VALUES(refusal(data_file("torch_legacy.pth")), "torch_legacy.pth " + pickle);
  EXPECT_VALUES(refusal(folder.path().string()), "is a folder");
  EXPECT_THROW(io::open_arrays(folder / "none"), io::MissingFileError);
}

TEST(ArrayFiles, ReadsWhatPyTorchWrote) {
  const Arrays arrays = io::load_arrays(data_file("torch_ramps.safetensors"));
  ASSERT_EQ(arrays.size(), 7u);
  const auto find = [&](const std::string& name) -> const io::NamedArray& {
    for (const io::NamedArray& a : arrays)
      if (a.name == name) return a;
    throw std::runtime_error("no " + name);
  };
  EXPECT_EQ(find("module.conv1.weight").shape, (std::vector<std::int64_t>{4, 2, 3, 3}));
  EXPECT_EQ(values_of<float>(find("module.conv1.weight"))[71], 34.5f);
  EXPECT_EQ(find("module.bn1.running_mean").section, io::Section::kBuffer);
  EXPECT_EQ(values_of<double>(find("module.bn1.running_mean"))[3], 0.5);
  EXPECT_EQ(values_of<std::int64_t>(find("module.bn1.num_batches_tracked")),
            (std::vector<std::int64_t>{-1}));
  EXPECT_EQ(find("module.brain").type, base::DType::kBF16);
  EXPECT_EQ(values_of<std::uint16_t>(find("module.brain")),
            (std::vector<std::uint16_t>{0xBF80, 0xBF00, 0, 0x3F00, 0x3F80}));
}

TEST(ToHalf, ConvertsNumbersAndRefusesOverflow) {
  const io::NamedArray doubles =
      array_of<double>("w", {1, 1.00048828125 + 1e-12, -2});  // a hair above a tie
  EXPECT_EQ(values_of<std::uint16_t>(io::to_half(doubles, base::DType::kF16, "x")),
            (std::vector<std::uint16_t>{0x3C00, 0x3C01, 0xC000}));
  EXPECT_EQ(io::to_half(doubles, base::DType::kBF16, "x").type, base::DType::kBF16);
  const io::NamedArray integers = array_of<std::int64_t>("n", {70000});
  EXPECT_EQ(io::to_half(integers, base::DType::kF16, "x").data, integers.data);
  EXPECT_THROW(io::to_half(array_of<float>("w", {70000}), base::DType::kF16, "x"), io::DataError);
  EXPECT_EQ(io::to_half(array_of<float>("w", {70000}), base::DType::kBF16, "x").data.size(), 2u);
  EXPECT_THROW(io::to_half(array_of<double>("w", {1e300}), base::DType::kBF16, "x"), io::DataError);
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(values_of<std::uint16_t>(
                io::to_half(array_of<float>("w", {infinity, -infinity}), base::DType::kF16, "x")),
            (std::vector<std::uint16_t>{0x7C00, 0xFC00}));
}

TEST(ToHalf, ConvertsNumbersOf16BitsToTheOtherType) {
  const io::NamedArray numbers = array_of<float>("w", {1, -0.1f, 3.0f / 8192, 0});
  const io::NamedArray f16 = io::to_half(numbers, base::DType::kF16, "x"),
                       bf16 = io::to_half(numbers, base::DType::kBF16, "x");
  const io::NamedArray brain = io::to_half(f16, base::DType::kBF16, "x");
  EXPECT_EQ(brain.type, base::DType::kBF16);
  EXPECT_EQ(values_of<std::uint16_t>(brain),
            (std::vector<std::uint16_t>{0x3F80, 0xBDCD, 0x39C0, 0}));
  const io::NamedArray half = io::to_half(bf16, base::DType::kF16, "x");
  EXPECT_EQ(half.type, base::DType::kF16);
  EXPECT_EQ(values_of<std::uint16_t>(half),
            (std::vector<std::uint16_t>{0x3C00, 0xAE68, 0x0E00, 0}));
  EXPECT_EQ(io::to_half(f16, base::DType::kF16, "x").data, f16.data);
  EXPECT_EQ(io::to_half(bf16, base::DType::kBF16, "x").data, bf16.data);
  const io::NamedArray large = io::to_half(array_of<float>("w", {70000}), base::DType::kBF16, "x");
  EXPECT_THROW(io::to_half(large, base::DType::kF16, "x"), io::DataError);
}

}  // namespace
