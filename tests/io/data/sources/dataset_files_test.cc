// Small IDX and CIFAR-10 files made here: what is read from good ones, and the one line said about
// each kind of damage.
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <functional>

#include "tests/io/data/sources/dataset_fixture.h"
#include "tests/support/expect_contains.h"

namespace io {
namespace {

std::string big_endian(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

// Pixel k of image i is (i + k) mod 256; label i is i mod 10.
std::string images(std::uint32_t count) {
  std::string file = big_endian(2051) + big_endian(count) + big_endian(28) + big_endian(28);
  for (std::uint32_t i = 0; i < count; ++i) {
    for (std::uint32_t k = 0; k < 784; ++k) file.push_back(static_cast<char>(i + k));
  }
  return file;
}
std::string labels(std::uint32_t count) {
  std::string file = big_endian(2049) + big_endian(count);
  for (std::uint32_t i = 0; i < count; ++i) file.push_back(static_cast<char>(i % 10));
  return file;
}

std::string gzip(const std::string& text) {
  z_stream stream{};
  std::string packed(text.size() + 1000, '\0');
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

class FilesTest : public dataset_fixture::DatasetFiles {
 protected:
  FilesTest() : DatasetFiles("mnist") {}

  void write_mnist() {
    write("train-images-idx3-ubyte", images(30));
    write("train-labels-idx1-ubyte", labels(30));
    write("t10k-images-idx3-ubyte", images(7));
    write("t10k-labels-idx1-ubyte", labels(7));
  }

  // Returns the error of loading, which names `file` in its folder.
  template <class ErrorType = DataError>
  std::string complaint(const std::string& name, const std::string& file) {
    options_.name = name;
    const std::string text = DatasetFiles::complaint<ErrorType>();
    EXPECT_CONTAINS(text, folder_.path().string());
    EXPECT_CONTAINS(text, file);
    return text;
  }
};

using IdxFiles = FilesTest;

TEST_F(IdxFiles, ReadsPlainFiles) {
  write_mnist();
  const DatasetSplits splits = load("mnist");
  EXPECT_EQ(splits.train.name, "mnist");
  EXPECT_EQ(splits.train.shape(), (std::array<std::int64_t, 3>{28, 28, 1}));
  EXPECT_EQ(splits.train.classes(), 10);
  ASSERT_EQ(splits.train.size(), 30);
  ASSERT_EQ(splits.test.size(), 7);
  EXPECT_EQ(splits.train.as<ClassLabels>().ids[13], 3);
  EXPECT_EQ(splits.train.as<ImageSamples>().pixels[13 * 784 + 5], 18);
  EXPECT_EQ(splits.test.as<ImageSamples>().format.mean,
            splits.train.as<ImageSamples>().format.mean);
}

TEST_F(IdxFiles, ReadsDotsInNamesAndGzip) {
  write("train-images.idx3-ubyte", images(30));
  write("train-labels-idx1-ubyte.gz", gzip(labels(30)));
  write("t10k-images.idx3-ubyte.gz",
        gzip(images(4)) + gzip(""));                 // gzip allows several streams in one file
  write("t10k-labels.idx1-ubyte", gzip(labels(4)));  // the content decides, not the name
  const DatasetSplits splits = load("fashion-mnist");
  EXPECT_EQ(splits.train.size(), 30);
  EXPECT_EQ(splits.test.size(), 4);
  EXPECT_EQ(splits.test.as<ImageSamples>().pixels[3 * 784 + 7], 10);
  // Two that both have something, in one file.
  const std::string all = images(4);
  for (const std::size_t cut : {std::size_t{20}, all.size() / 2, all.size() - 5}) {
    write("t10k-images.idx3-ubyte.gz", gzip(all.substr(0, cut)) + gzip(all.substr(cut)));
    EXPECT_EQ(load("fashion-mnist").test.as<ImageSamples>().pixels,
              splits.test.as<ImageSamples>().pixels);
  }
}

// As Kaggle's archive unpacks: each file twice, once in a folder of the other name.
TEST_F(IdxFiles, ReadsFilesInFoldersOfTheirNames) {
  write_mnist();
  for (const std::string stem : {"train-images", "train-labels", "t10k-images", "t10k-labels"}) {
    const std::string kind = stem.ends_with("images") ? "idx3-ubyte" : "idx1-ubyte";
    const std::string name = stem + "-" + kind;
    const std::string content = read(name);
    remove(name);
    std::filesystem::create_directory(folder_ / name);
    write(name + "/" + name, content);
    EXPECT_EQ(stem == "t10k-labels" ? load("mnist").test.size() : 7, 7);  // these alone are enough
    write(stem + "." + kind, content);
  }
  EXPECT_EQ(load("mnist").train.size(), 30);
  write("train-labels.idx1-ubyte", labels(29) + "\7");
  const std::string text = complaint("mnist", "train-labels.idx1-ubyte");
  EXPECT_CONTAINS(text, "train-labels-idx1-ubyte/train-labels-idx1-ubyte");
  EXPECT_CONTAINS(text, "which differ");
}

TEST_F(IdxFiles, PackedAndPlainFilesMustBeTheSame) {
  write_mnist();
  write("train-images-idx3-ubyte.gz", gzip(images(30)));  // as torchvision and gunzip -k leave it
  EXPECT_EQ(load("mnist").train.size(), 30);
  write("train-images-idx3-ubyte.gz", gzip(images(31)));
  EXPECT_CONTAINS(complaint("mnist", "train-images-idx3-ubyte.gz"), "which differ");
}

TEST_F(IdxFiles, AFolderAboveNamesTheOneThatHasThem) {
  std::filesystem::create_directories(folder_ / "MNIST/raw");
  write("MNIST/raw/train-images-idx3-ubyte", images(30));
  EXPECT_CONTAINS(complaint<MissingFileError>("mnist", "MNIST/raw: name that folder"),
                  "--data-dir");
}

TEST_F(IdxFiles, TablesInTheirPlaceAreNamed) {
  write("mnist_train.csv", "label,1x1\n5,0\n");
  EXPECT_CONTAINS(complaint<MissingFileError>("mnist", "mnist_train.csv there is a table"),
                  "--dataset csv");
}

TEST_F(IdxFiles, MissingFileSaysHowToGetIt) {
  write_mnist();
  remove("t10k-labels-idx1-ubyte");
  const std::string text = complaint<MissingFileError>("mnist", "t10k-labels-idx1-ubyte");
  EXPECT_CONTAINS(text, "tools/scripts/get_data.sh mnist --dir");
}

std::string cut(std::string file) {
  file.pop_back();
  return file;
}
auto with_byte(std::size_t at, int value) {
  return [=](std::string file) {
    file[at] = static_cast<char>(value);
    return file;
  };
}

TEST_F(IdxFiles, EachDamageIsNamed) {
  struct Case {
    const char* file;
    std::function<std::string(std::string)> damage;
    std::vector<std::string> said;
  };
  const std::string train = "train-images-idx3-ubyte", marks = "t10k-labels-idx1-ubyte";
  const Case cases[] = {
      {"train-images-idx3-ubyte", cut, {"truncated", "found 23519 bytes", "expected 23520"}},
      {"train-images-idx3-ubyte",
       [](std::string s) { return s + "xy"; },
       {"trailing", "found 23522 bytes", "expected 23520"}},
      {"train-images-idx3-ubyte", with_byte(3, 1), {"magic", "found 2049", "expected 2051"}},
      {"train-images-idx3-ubyte",
       with_byte(11, 32),
       {"image size", "found 32 x 28", "expected 28 x 28"}},
      {"train-images-idx3-ubyte", with_byte(4, 0x7F), {"labels"}},
      {"train-images-idx3-ubyte",
       [](std::string) { return std::string(); },
       {"truncated", "found 0 bytes", "header of 16"}},
      {"t10k-labels-idx1-ubyte", cut, {"truncated", "found 6 bytes", "expected 7"}},
      {"t10k-labels-idx1-ubyte",
       [](std::string s) { return s + "x"; },
       {"trailing", "found 8 bytes", "expected 7"}},
      {"t10k-labels-idx1-ubyte", with_byte(3, 3), {"magic", "found 2051", "expected 2049"}},
      {"t10k-labels-idx1-ubyte",
       with_byte(7, 6),
       {"found 6 labels", "expected 7", "t10k-images-idx3-ubyte"}},
      {"t10k-labels-idx1-ubyte", with_byte(8 + 5, 10), {"position 5", "found 10", "expected 0..9"}},
  };
  for (const Case& damaged : cases) {
    write_mnist();
    write(damaged.file, damaged.damage(read(damaged.file)));
    // A wrong count of images shows in the labels, which are not as many.
    const std::string file = damaged.said[0] == "labels" ? "train-labels-idx1-ubyte" : damaged.file;
    const std::string text = complaint("mnist", file);
    for (const std::string& part : damaged.said) EXPECT_CONTAINS(text, part);
  }
}

// Both parts are read at the same time.
TEST_F(IdxFiles, OfTwoDamagedPartsTheTrainingPartIsNamed) {
  write_mnist();
  write("t10k-images-idx3-ubyte", "short");
  complaint("mnist", "t10k-images-idx3-ubyte");
  write("train-images-idx3-ubyte", "short");
  for (int i = 0; i < 20; ++i) complaint("mnist", "train-images-idx3-ubyte");
}

TEST_F(IdxFiles, AnEmptySetIsRefused) {
  write_mnist();
  write("t10k-images-idx3-ubyte", images(0));
  write("t10k-labels-idx1-ubyte", labels(0));
  EXPECT_CONTAINS(complaint("mnist", "t10k-labels-idx1-ubyte"), "found 0 labels");
}

TEST_F(IdxFiles, DamagedGzipIsNamed) {
  const std::string whole = gzip(images(30)), name = "train-images-idx3-ubyte.gz";
  write_mnist();
  remove("train-images-idx3-ubyte");
  write(name, whole.substr(0, whole.size() / 2));
  EXPECT_CONTAINS(complaint("mnist", name), "truncated");
  write(name,
        whole.substr(0, whole.size() - 3));  // all data there, but not the checksum at the end
  EXPECT_CONTAINS(complaint("mnist", name), "truncated");
  std::string flipped = whole;
  flipped[flipped.size() - 6] ^= 1;  // in the checksum
  write(name, flipped);
  EXPECT_CONTAINS(complaint("mnist", name), "damaged");
  for (const char length : {'\0', '\1', '\x7F'}) {  // in the length behind it
    std::string lying = whole;
    lying[lying.size() - 3] = length;
    write(name, lying);
    EXPECT_CONTAINS(complaint("mnist", name), "damaged");
  }
  write(name, whole + "garbage");
  EXPECT_CONTAINS(complaint("mnist", name), "follow after the end");
}

TEST_F(IdxFiles, AHugeCountInTheHeaderTakesNoMemory) {
  write_mnist();
  write("train-images-idx3-ubyte", images(30).replace(4, 4, big_endian(0xFFFFFFFF)));
  write("train-labels-idx1-ubyte", labels(30).replace(4, 4, big_endian(0xFFFFFFFF)));
  EXPECT_CONTAINS(complaint("mnist", "train-labels-idx1-ubyte"), "truncated: found 30 bytes");
}

// Some 60 kB that would be 60 MB: a set like that is refused by its header.
TEST_F(IdxFiles, ACompressedFileThatGrowsBeyondReasonIsRefused) {
  constexpr std::uint32_t kCount = 76'000;
  write_mnist();
  remove("train-images-idx3-ubyte");
  write("train-images-idx3-ubyte.gz",
        gzip(images(0).replace(4, 4, big_endian(kCount)) + std::string(784 * kCount, '\0')));
  write("train-labels-idx1-ubyte", labels(kCount));
  EXPECT_CONTAINS(complaint("mnist", "train-images-idx3-ubyte.gz"), "unpacks to more than");
  // Nor is a small set read to the end of what follows.
  write("train-images-idx3-ubyte.gz", gzip(images(30) + std::string(60'000'000, '\0')));
  write("train-labels-idx1-ubyte", labels(30));
  EXPECT_CONTAINS(complaint("mnist", "train-images-idx3-ubyte.gz"), "unpacks to more than");
}

TEST_F(IdxFiles, ADeviceIsNoDataFile) {
  DatasetOptions options;
  options.name = "csv";
  options.csv.annotations = "/dev/zero";
  EXPECT_VALUES(test_support::error_of<DataError>([&] { load_dataset(options); }),
                "/dev/zero regular");
}

TEST_F(IdxFiles, ATextThatGrowsBeyondReasonIsRefused) {
  write("a.txt.gz", gzip(std::string(60'000'000, 'a')));
  EXPECT_CONTAINS(complaint("text", "a.txt.gz"), "gunzip");
}

TEST_F(IdxFiles, AFolderInPlaceOfAFileIsAnError) {
  write_mnist();
  remove("train-images-idx3-ubyte");
  std::filesystem::create_directory(folder_ / "train-images-idx3-ubyte");
  EXPECT_CONTAINS(complaint("mnist", "train-images-idx3-ubyte"), "is a folder");
}

// Record i: label i mod 10, red i, green 100 + i, blue the place in the plane.
std::string records(int first, int count) {
  std::string file;
  for (int i = first; i < first + count; ++i) {
    file.push_back(static_cast<char>(i % 10));
    file.append(1024, static_cast<char>(i)).append(1024, static_cast<char>(100 + i));
    for (int k = 0; k < 1024; ++k) file.push_back(static_cast<char>(k));
  }
  return file;
}

class Cifar10Files : public FilesTest {
 protected:
  void write_cifar10() {
    write("data_batch_10.bin", records(5, 1));
    write("data_batch_2.bin", records(2, 3));
    write("data_batch_1.bin", records(0, 2));
    write("test_batch_3.bin", records(7, 3));
    write("batches.meta.txt", "airplane\n");
  }
};

TEST_F(Cifar10Files, ReadsAllBatchesInOrder) {
  write_cifar10();
  const DatasetSplits splits = load("cifar10");
  EXPECT_EQ(splits.train.shape(), (std::array<std::int64_t, 3>{32, 32, 3}));
  EXPECT_EQ(splits.train.as<ClassLabels>().ids, (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(splits.test.as<ClassLabels>().ids, (std::vector<std::int32_t>{7, 8, 9}));
  const std::uint8_t* pixel = &splits.train.as<ImageSamples>().pixels[(4 * 1024 + 33) * 3];
  EXPECT_EQ(pixel[0], 4);
  EXPECT_EQ(pixel[1], 104);
  EXPECT_EQ(pixel[2], 33);
  ASSERT_EQ(splits.train.as<ImageSamples>().format.mean.size(), 3u);
  EXPECT_FLOAT_EQ(splits.train.as<ImageSamples>().format.mean[0], 2.5f / 255);
  EXPECT_FLOAT_EQ(splits.train.as<ImageSamples>().format.mean[1], 102.5f / 255);
  EXPECT_FLOAT_EQ(splits.train.as<ImageSamples>().format.deviation[1], 1.7078251f / 255);
}

TEST_F(Cifar10Files, EachDamageIsNamed) {
  write_cifar10();
  write("data_batch_2.bin", records(2, 3) + "x");
  EXPECT_VALUES(complaint("cifar10", "data_batch_2.bin"), "9220 bytes (3 records 1 bytes)");
  write("data_batch_2.bin", "");
  EXPECT_CONTAINS(complaint("cifar10", "data_batch_2.bin"), "found 0 bytes");
  std::string wrong_label = records(2, 3);
  wrong_label[2 * 3073] = 11;
  write("data_batch_2.bin", wrong_label);
  const std::string text = complaint("cifar10", "data_batch_2.bin");
  EXPECT_CONTAINS(text, "at record 2");
  EXPECT_CONTAINS(text, "found 11, expected 0..9");
}

TEST_F(Cifar10Files, TheFolderOfTheArchiveIsNamed) {
  std::filesystem::create_directory(folder_ / "cifar-10-batches-bin");
  EXPECT_VALUES(complaint<MissingFileError>("cifar10", "data_batch_*.bin"),
                "cifar-10-batches-bin: --data-dir");
}

TEST_F(Cifar10Files, MissingAndStillPackedFilesAreNamed) {
  write_cifar10();
  remove("test_batch_3.bin");
  EXPECT_CONTAINS(complaint<MissingFileError>("cifar10", "test_batch*.bin"),
                  "tools/scripts/get_data.sh cifar10 --dir");
  write("test_batch_3.bin.xz", "packed");
  EXPECT_CONTAINS(complaint<MissingFileError>("cifar10", "test_batch_3.bin"),
                  "unpack it with `xz -dk");
}

}  // namespace
}  // namespace io
