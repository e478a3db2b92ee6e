// .npz: files that NumPy wrote, archives made here byte by byte, what is refused and why, and our
// own writer read back.
#include "io/interchange/numpy/npz.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>

#include "io/interchange/numpy/npy_header.h"
#include "io/interchange/zip/zip_archive.h"
#include "tests/io/interchange/array_fixture.h"
#include "tests/io/interchange/zip/zip_fixture.h"
#include "tests/support/expect_contains.h"

namespace {

using array_fixture::array_of;
using array_fixture::Arrays;
using array_fixture::Bytes;
using array_fixture::data_file;
using array_fixture::values_of;
using namespace zip_fixture;

constexpr const char* kNpzName = "some/file.npz";

Arrays parse(const std::string& bytes) {
  return io::read_arrays(
      *io::open_npz(io::memory_bytes(std::as_bytes(std::span(bytes)), kNpzName)));
}

// The fault, which must be a DataError that names the file; "" when the bytes are accepted.
std::string npz_fault(const std::string& bytes) {
  try {
    parse(bytes);
  } catch (const io::DataError& error) {
    EXPECT_EQ(std::string(error.what()).find(kNpzName), 0u) << error.what();
    return error.what();
  }
  return "";
}

template <class T>
std::vector<T> ramp(std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    if constexpr (std::is_floating_point_v<T>) {
      values[i] = static_cast<T>(static_cast<double>(i) * 0.5 - 1);
    } else {
      values[i] = static_cast<T>(std::is_signed_v<T> ? static_cast<std::int64_t>(i) - 1
                                                     : static_cast<std::int64_t>(i));
    }
  }
  return values;
}

// Some 60 kB that would be 60 MB, in both orders of elements.
TEST(Npz, AnArchiveThatGrowsBeyondReasonIsRefusedBeforeItDoes) {
  const std::string zeros(60'000'000, '\0');
  for (const std::string order : {"False", "True"}) {
    const std::string header =
        npy_text("{'descr': '|u1', 'fortran_order': " + order + ", 'shape': (6000, 10000)}", 1);
    const std::string archive = zip_of({{"a.npy", header + zeros}}, {.deflate = true});
    EXPECT_LT(archive.size(), 100'000u);
    EXPECT_CONTAINS(npz_fault(archive), "unpacks to 60000000 bytes");
  }
}

TEST(Npz, ReadsWhatNumpyWrote) {
  for (const char* file : {"numpy_stored.npz", "numpy_deflated.npz"}) {
    const Arrays arrays = io::read_arrays(*io::open_npz(io::open_bytes(data_file(file))));
    ASSERT_EQ(arrays.size(), 8u) << file;
    EXPECT_EQ(arrays[0].name, "conv1.weight");
    EXPECT_EQ(arrays[0].shape, (std::vector<std::int64_t>{4, 2, 3, 3}));
    EXPECT_EQ(values_of<float>(arrays[0]), ramp<float>(72));
    EXPECT_EQ(arrays[1].name, "turned");  // in Fortran order in the file
    EXPECT_EQ(arrays[1].shape, (std::vector<std::int64_t>{3, 4, 5}));
    EXPECT_EQ(values_of<float>(arrays[1]), ramp<float>(60));
    EXPECT_EQ(values_of<double>(arrays[2]), ramp<double>(4));
    EXPECT_EQ(arrays[3].name, "bn1.num_batches_tracked");
    EXPECT_TRUE(arrays[3].shape.empty());
    EXPECT_EQ(values_of<std::int64_t>(arrays[3]), ramp<std::int64_t>(1));
    EXPECT_EQ(arrays[4].type, base::DType::kF16);
    EXPECT_EQ(values_of<std::uint16_t>(arrays[4]),
              (std::vector<std::uint16_t>{0xBC00, 0xB800, 0, 0x3800, 0x3C00, 0x3E00, 0x4000}));
    EXPECT_EQ(values_of<std::int32_t>(arrays[5]), ramp<std::int32_t>(6));
    EXPECT_EQ(values_of<std::uint8_t>(arrays[6]), ramp<std::uint8_t>(300));
    EXPECT_EQ(arrays[7].shape, (std::vector<std::int64_t>{0, 3}));
  }
}

TEST(Npz, ReadsPiecesInAnyOrder) {
  for (const char* file : {"numpy_stored.npz", "numpy_deflated.npz"}) {
    const auto source = io::open_npz(io::open_bytes(data_file(file)));
    const auto piece = [&](std::size_t index, std::uint64_t offset) {
      std::byte bytes[4];
      source->read(index, offset, bytes);
      float value = 0;
      std::memcpy(&value, bytes, 4);
      return value;
    };
    EXPECT_EQ(piece(0, 71 * 4), 34.5f);
    EXPECT_EQ(piece(1, 59 * 4), 28.5f);
    EXPECT_EQ(piece(0, 0), -1);
    EXPECT_EQ(piece(1, 4), -0.5f);
    source->finish();
    EXPECT_EQ(piece(0, 4), -0.5f);
  }
}

TEST(Npz, TypesThatNoModelHasAreNamedAndNotRead) {
  const std::string bytes = zip_of({{"mask.npy", npy("|b1", "(2,)", "ab")},
                                    {"ids.npy", npy("<i2", "(2,)", "abcd")},
                                    {"w.npy", npy("|u1", "(2,)", "xy")},
                                    {"names.npy", npy("<U1", "(2,)", "abcdabcd")}});
  const auto source =
      io::open_npz(io::memory_bytes(std::as_bytes(std::span(bytes)), "some/file.npz"));
  ASSERT_EQ(source->unread().size(), 3u);
  EXPECT_EQ(source->unread()[1].name + " " + source->unread()[1].type, "ids <i2");
  const auto arrays = io::read_arrays(*source);
  ASSERT_EQ(arrays.size(), 1u);
  EXPECT_EQ(arrays[0].name, "w");
  EXPECT_EQ(arrays[0].data, (std::vector<std::byte>{std::byte{'x'}, std::byte{'y'}}));
}

TEST(Npz, EachTypeThatIsNotReadIsNamed) {
  for (const std::string type :
       {"<U4", "|S4", "<M8[ns]", "<m8[s]", "|b1", "|i1", "<i2", "<u2", "<u4", "<u8"}) {
    const std::string bytes = zip_of({{"x.npy", npy(type, "(1,)", "1234")}});
    const auto source =
        io::open_npz(io::memory_bytes(std::as_bytes(std::span(bytes)), "some/file.npz"));
    EXPECT_TRUE(source->entries().empty()) << type;
    ASSERT_EQ(source->unread().size(), 1u) << type;
    EXPECT_EQ(source->unread()[0].type, type);
  }
}

TEST(Npz, RefusesPicklesAndForeignTypesByName) {
  const auto refusal = [](const std::string& file) {
    try {
      io::open_npz(io::open_bytes(data_file(file)));
    } catch (const io::DataError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_VALUES(refusal("numpy_objects.npz"), "'|O': pickle");
  EXPECT_CONTAINS(refusal("numpy_big_endian.npz"), "'>f4' is big-endian");
  EXPECT_CONTAINS(refusal("numpy_structured.npz"), "a structured dtype");
  EXPECT_VALUES(refusal("torch_ramps.pth"), "data.pkl' .npy .npz PyTorch's");
  EXPECT_VALUES(npz_fault(zip_of({{"readme.txt", "hello"}})), "'readme.txt' .npy .npz");
  EXPECT_VALUES(npz_fault(zip_of({{".npy", npy("<f4", "()", "1234")}})), "'.npy' .npy .npz");
}

TEST(Npz, WriterReadsBackInOrderAndAgainTheSameBytes) {
  const test_support::TemporaryDirectory folder;
  Arrays saved{array_of<float>("z.weight", ramp<float>(1000)),
               array_of<double>("a/b", ramp<double>(3)),
               array_of<std::int64_t>("\xc3\xa9", ramp<std::int64_t>(1)),
               array_of<std::uint8_t>("empty", {}),
               array_of<std::uint16_t>("half", {1, 2}),
               array_of<std::int32_t>("ids", ramp<std::int32_t>(6))};
  saved[0].shape = {10, 1, 100};
  saved[2].shape = {};
  saved[3].shape = {0, 7};
  io::save_npz(saved, folder / "a.npz");
  array_fixture::expect_same(io::read_arrays(*io::open_npz(io::open_bytes(folder / "a.npz"))),
                             saved);
  io::save_npz(saved, folder / "b.npz");
  EXPECT_EQ(test_support::read_text(folder / "a.npz"), test_support::read_text(folder / "b.npz"));
  io::save_npz({}, folder / "none.npz");
  EXPECT_TRUE(io::read_arrays(*io::open_npz(io::open_bytes(folder / "none.npz"))).empty());
}

TEST(Npz, WriterReservesExactlyWhatItWrites) {
  std::string out;
  io::ZipWriter writer([&](std::span<const std::byte> bytes) {
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  const Bytes data(77);
  writer.add("x.npy", {data, data});
  writer.add("longer/name.npy", {});
  writer.finish();
  EXPECT_EQ(out.size(), io::ZipWriter::total_bytes({{"x.npy", 154}, {"longer/name.npy", 0}}));
}

TEST(Npz, WriterRefusesWhatItWouldNotRead) {
  const test_support::TemporaryDirectory folder;
  io::NamedArray brain = array_of<std::uint16_t>("w", {1});
  brain.type = base::DType::kBF16;
  io::NamedArray short_data = array_of<float>("w", {1, 2});
  short_data.data.pop_back();
  const auto named = [](const std::string& name) { return array_of<float>(name, {1}); };
  for (const Arrays& arrays :
       {Arrays{brain}, Arrays{short_data}, Arrays{named("w"), named("w")}, Arrays{named("")},
        Arrays{named("../w")}, Arrays{named("/w")}, Arrays{named("a\\b")}, Arrays{named("\xff")},
        Arrays{named(std::string("a\0b", 3))}, Arrays{named("a/./b")},
        Arrays{named(std::string(4097, 'x'))}})
    EXPECT_THROW(io::save_npz(arrays, folder / "a.npz"), io::DataError) << arrays[0].name;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THROW(io::save_npz({named("w")}, folder / "none/a.npz"), io::CannotCreateError);
}

TEST(Npz, MembersLargerThanFourGigabytesHaveZip64Fields) {
  // Sizes alone: the sums that the writer makes must match what it would write.
  const std::uint64_t large = std::uint64_t{5} << 30;
  EXPECT_EQ(io::ZipWriter::total_bytes({{"a", large}, {"b", 1}}),
            30 + 1 + 20 + large + 30 + 1 + 1 + 46 + 1 + 28 + 46 + 1 + 28 + 22 + 56 + 20);
  // The reader follows a zip64 directory; here a small archive whose numbers are all masked.
  const std::string good = zip_of({{"x.npy", npy("<f4", "(1,)", "1234")}}, {.zip64 = true});
  EXPECT_EQ(parse(good).at(0).data.size(), 4u);
  for (std::size_t cut = 1; cut < 99; ++cut)
    EXPECT_NE(npz_fault(good.substr(0, good.size() - cut)), "");
}

TEST(NpyHeader, Dictionaries) {
  const auto shape_of = [](const std::string& text) {
    const std::string header = npy_text(text, 1);
    return io::parse_npy_header(std::as_bytes(std::span(header)), kNpzName).shape;
  };
  const auto dictionary = [](const std::string& shape) {
    return "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }";
  };
  EXPECT_EQ(shape_of(dictionary("()")), (std::vector<std::int64_t>{}));
  EXPECT_EQ(shape_of(dictionary("(3,)")), (std::vector<std::int64_t>{3}));
  EXPECT_EQ(shape_of(dictionary("( 3 , 4 )")), (std::vector<std::int64_t>{3, 4}));
  EXPECT_EQ(shape_of(dictionary("(3, 4,)")), (std::vector<std::int64_t>{3, 4}));
  EXPECT_EQ(shape_of("{\"shape\":(1,2),\"fortran_order\":True,\"descr\":\"|u1\"}   \n"),
            (std::vector<std::int64_t>{1, 2}));
  for (int version : {1, 2, 3}) {
    const std::string header = npy_text(dictionary("(2,)"), version);
    EXPECT_EQ(io::parse_npy_header(std::as_bytes(std::span(header)), kNpzName).header_bytes,
              header.size());
  }
}

TEST(NpyHeader, WrittenAsNumpyDoes) {
  EXPECT_EQ(io::write_npy_header(base::DType::kF32, {2, 3}, "x").size() % 64, 0u);
  const std::string header = io::write_npy_header(base::DType::kI64, {5}, "x");
  EXPECT_EQ(header.substr(10, 62),
            "{'descr': '<i8', 'fortran_order': False, 'shape': (5,), }     ");
  EXPECT_EQ(header.back(), '\n');
  EXPECT_NE(io::write_npy_header(base::DType::kU8, {}, "x")
                .find("'|u1', 'fortran_order': False, 'shape': (), }"),
            std::string::npos);
}

TEST(NpyHeader, BadDictionariesAreRefused) {
  const std::string bad[] = {
      "",
      "{}",
      "None",
      "{'descr': '<f4', 'fortran_order': False}",
      "{'descr': '<f4', 'shape': (1,)}",
      "{'fortran_order': False, 'shape': (1,)}",
      "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)",
      "{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}",
      "{descr: '<f4', 'fortran_order': False, 'shape': (1,)}",
      "{'descr': <f4, 'fortran_order': False, 'shape': (1,)}",
      "{'descr': '<f4, 'fortran_order': False, 'shape': (1,)}",
      "{'descr': '<f4', 'fortran_order': false, 'shape': (1,)}",
      "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': 1}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': [1]}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1.0,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (01,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,,2)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (__import__('os').system('true'),)}",
      "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
      "{'descr': 'O', 'fortran_order': False, 'shape': (1,)}",
      "{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}",
      "{'descr': '<f16', 'fortran_order': False, 'shape': (1,)}",
      "{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}",
      "{'descr': '', 'fortran_order': False, 'shape': (1,)}",
      "{'descr': 'f4', 'fortran_order': False, 'shape': (1,)}",
      "{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (1,)}",
      "{'descr': ('<f4', (2,)), 'fortran_order': False, 'shape': (1,)}",
      "{'descr': '\\x3cf4', 'fortran_order': False, 'shape': (1,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",  // but four bytes of data
      "{'descr': '<f4', 'fortran_order': False, 'shape': ()",
      std::string(60'000, '{'),
      std::string(60'000, '('),
  };
  for (const std::string& text : bad)
    EXPECT_NE(npz_fault(zip_of({{"x.npy", npy_text(text, 1) + "1234"}})), "")
        << text.substr(0, 100);
  EXPECT_EQ(npz_fault(zip_of({{"x.npy", npy("<f4", "(1,)", "1234")}})), "");
}

TEST(NpyHeader, BadPrefixesAreRefused) {
  const std::string good = npy("<f4", "(1,)", "1234");
  const auto with = [&](std::size_t at, const std::string& bytes) {
    std::string bad = good;
    bad.replace(at, bytes.size(), bytes);
    return npz_fault(zip_of({{"x.npy", bad}}));
  };
  EXPECT_CONTAINS(with(0, "\x92"), "not a .npy array");
  EXPECT_CONTAINS(with(6, std::string("\x04\x00", 2)), ".npy version 4.0");
  EXPECT_CONTAINS(with(6, std::string("\x00\x00", 2)), ".npy version 0.0");
  EXPECT_CONTAINS(with(6, std::string("\x01\x01", 2)), ".npy version 1.1");
  EXPECT_CONTAINS(with(8, "\xff\xff"), "truncated .npy header");
  EXPECT_VALUES(with(6, std::string("\x02\x00\xff\xff\xff\xff", 6)),
                ".npy header 4294967295 bytes");
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_NE(npz_fault(zip_of({{"x.npy", good.substr(0, length)}})), "") << length;
  EXPECT_VALUES(npz_fault(zip_of({{"x.npy", good + "5"}})), "5 bytes 4");
}

TEST(ZipArchive, HostileDirectoriesAreRefused) {
  const std::string x = npy("<f4", "(1,)", "1234");
  const std::vector<std::pair<std::string, std::string>> one{{"x.npy", x}},
      two{{"x.npy", x}, {"y.npy", x}};
  const auto with = [&](const Tricks& tricks) { return npz_fault(zip_of(two, tricks)); };
  EXPECT_EQ(with({}), "");
  EXPECT_CONTAINS(with({.comment = "hello"}), "is not at the end of the file");
  EXPECT_CONTAINS(with({.flags = 1}), "is encrypted");
  EXPECT_CONTAINS(with({.flags = 1 << 5}), "of a kind unknown");
  EXPECT_CONTAINS(with({.method = 14}), "method 14");
  EXPECT_CONTAINS(with({.crc_xor = 1}), "CRC-32");
  EXPECT_CONTAINS(with({.same_place = true}), "disagree");
  EXPECT_CONTAINS(with({.count_more = 1}), "");
  EXPECT_CONTAINS(with({.count_more = -1}), "belong to no member");
  EXPECT_CONTAINS(with({.count_more = 60'000}), "");
  EXPECT_CONTAINS(with({.directory_shift = 1}), "does not end at");
  EXPECT_CONTAINS(with({.directory_shift = -1}), "does not end at");
  EXPECT_CONTAINS(with({.local_offset = 0x7FFFFFFF}), "begins beyond the end");
  EXPECT_CONTAINS(with({.size_more = 1}), "");
  EXPECT_CONTAINS(with({.size_more = 1'000'000}), "");
  EXPECT_CONTAINS(with({.disk = 1}), "one of several parts");
  EXPECT_CONTAINS(with({.junk_before = 5}), "");
  EXPECT_VALUES(npz_fault(zip_of({{"x.npy", x}, {"x.npy", x}})), "'x.npy' twice");
  for (const char* name :
       {"/x.npy", "../x.npy", "a/../x.npy", "./x.npy", "a\\x.npy", "", "\xff.npy", "\xc3\xa9.npy"})
    EXPECT_NE(npz_fault(zip_of({{name, x}})), "")
        << name;  // the last one without the flag that says UTF-8
  EXPECT_EQ(parse(zip_of({{"\xc3\xa9.npy", x}}, {.flags = 1 << 11})).at(0).name, "\xc3\xa9");
}

TEST(ZipArchive, DeflatedMembers) {
  const std::string x = npy("|u1", "(100000,)", std::string(100'000, 'a'));
  const std::string good = zip_of({{"x.npy", x}}, {.deflate = true});
  EXPECT_LT(good.size(), 1000u);
  EXPECT_EQ(parse(good).at(0).data, Bytes(100'000, std::byte{'a'}));
  EXPECT_CONTAINS(npz_fault(zip_of({{"x.npy", x}}, {.deflate = true, .size_more = 1})),
                  "");  // claims a byte more than there is
  EXPECT_CONTAINS(npz_fault(zip_of({{"x.npy", x}}, {.deflate = true, .size_more = -1})), "");
  EXPECT_CONTAINS(npz_fault(zip_of({{"x.npy", x}}, {.deflate = true, .size_more = 1'000'000'000})),
                  "more than deflate can");
  EXPECT_CONTAINS(npz_fault(zip_of({{"x.npy", x}}, {.deflate = true, .crc_xor = 1})), "CRC-32");
  EXPECT_EQ(npz_fault(zip_of({{"x.npy", x}}, {.flags = 8, .deflate = true, .descriptor = true})),
            "");
  EXPECT_CONTAINS(npz_fault(zip_of({{"x.npy", ""}}, {.deflate = true})), "not a .npy array");
}

TEST(ZipArchive, OverlapIsRefused) {
  // The second member's header lies within the first one's data: how small archives are made to
  // unpack to petabytes.
  const std::string x = npy("|u1", "(1,)", "a");
  const std::string inner = local_part("y.npy", x);
  EXPECT_CONTAINS(
      npz_fault(overlapping("x.npy", npy("|u1", "(" + std::to_string(inner.size()) + ",)", inner),
                            "y.npy", x)),
      "overlap");
}

// NumPy, where there is one, reads what we write.
TEST(Npz, NumpyReadsWhatWeWrote) {
  const auto python = [](const std::vector<std::string>& arguments) {
    std::vector<std::string> command{"/usr/bin/env", "python3"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return test_support::run_command(command);
  };
  if (python({"-c", "import numpy"}).exit_code != 0) GTEST_SKIP() << "no python3 with numpy";
  const test_support::TemporaryDirectory folder;
  Arrays saved{array_of<float>("conv.weight", ramp<float>(24)),
               array_of<double>("f8", ramp<double>(3)),
               array_of<std::int64_t>("\xc3\xa9", ramp<std::int64_t>(1)),
               array_of<std::uint8_t>("empty", {}),
               array_of<std::uint16_t>("half", {0x3C00, 0xC000}),
               array_of<std::int32_t>("i4", ramp<std::int32_t>(6))};
  saved[0].shape = {2, 3, 4};
  saved[2].shape = {};
  saved[3].shape = {0, 7};
  io::save_npz(saved, folder / "a.npz");
  const auto result = python({"-c",
                              "import sys, zipfile, numpy\n"
                              "assert zipfile.ZipFile(sys.argv[1]).testzip() is None\n"
                              "z = numpy.load(sys.argv[1])\n"
                              "for n in z.files: print(ascii(n), z[n].dtype.str, z[n].shape, "
                              "z[n].ravel()[-1:].tolist())\n",
                              folder / "a.npz"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "'conv.weight' <f4 (2, 3, 4) [10.5]\n'f8' <f8 (3,) [0.0]\n'\\xe9' <i8 () [-1]\n'empty' "
            "|u1 (0, 7) []\n"
            "'half' <f2 (2,) [-2.0]\n'i4' <i4 (6,) [4]\n");
}

}  // namespace
