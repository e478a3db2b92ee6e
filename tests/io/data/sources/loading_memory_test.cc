// What loading takes of memory, by the sizes of files alone.
#include "io/data/sources/loading_memory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <zlib.h>

#include <filesystem>
#include <string>

#include "tests/support/test_support.h"

namespace {

class LoadingMemory : public testing::Test {
 protected:
  void write(const std::string& name, std::size_t bytes) {
    test_support::write_text(folder_ / name, std::string(bytes, 'a'));
  }
  // Returns the size of the file.
  std::uint64_t write_packed(const std::string& name, std::size_t bytes) {
    const std::string path = folder_ / name, text(bytes, 'a');
    const gzFile file = gzopen(path.c_str(), "wb");
    gzwrite(file, text.data(), static_cast<unsigned>(bytes));
    gzclose(file);
    return std::filesystem::file_size(path);
  }
  std::uint64_t need(const std::string& set) const { return need(set, folder_.path().string()); }
  static std::uint64_t need(const std::string& set, const std::string& directory) {
    io::DatasetOptions options;
    options.name = set;
    options.directory = directory;
    return io::loading_bytes(options);
  }
  test_support::TemporaryDirectory folder_;
};

TEST_F(LoadingMemory, IsNotKnownWithoutFiles) {
  EXPECT_EQ(need("mnist"), 0u);
  EXPECT_EQ(need("glyphs"), 0u);
  ASSERT_EQ(mkfifo((folder_ / "a.csv").c_str(), 0600), 0);
  EXPECT_EQ(need("csv"), 0u) << "and a pipe is not waited for";
}

TEST_F(LoadingMemory, OfPackedImagesIsTheirContentAndTheLargestFile) {
  const std::uint64_t train = write_packed("train-images-idx3-ubyte.gz", 500'000);
  const std::uint64_t test = write_packed("t10k-images-idx3-ubyte.gz", 1000);
  write("train-labels-idx1-ubyte", 70);
  EXPECT_EQ(need("mnist"), 501'000 + train);
  write("train-images-idx3-ubyte", 500'000);  // the same, which is read instead
  EXPECT_EQ(need("mnist"), 501'000 + test);
  write("train-images-idx3-ubyte", 400'000);
  EXPECT_EQ(need("mnist"), 0u) << "two that differ are refused";
}

TEST_F(LoadingMemory, OfRecordsIsThatOfAllAndOfTheLargestFileAgain) {
  for (const char* name : {"data_batch_1.bin", "data_batch_2.bin"}) write(name, 3000);
  write("test_batch.bin", 1000);
  write("readme.html", 500);
  EXPECT_EQ(need("cifar10"), 10'000u);
}

TEST_F(LoadingMemory, OfTextsIsTheirBytesAndAnIdForEach) {
  write("a.txt", 3000);
  write_packed("b.txt.gz", 2000);
  write("readme.md", 500);
  EXPECT_EQ(need("text"), 25'000u);
  EXPECT_EQ(need("tinyshakespeare"), 25'000u);
  EXPECT_EQ(need("text", folder_ / "a.txt"), 15'000u);
}

TEST_F(LoadingMemory, OfPackedTokensIsFourBytesForEachAndWhatIsUnpacked) {
  write_packed("train.bin.gz", 4000);
  EXPECT_EQ(need("tokens"), 12'000u);
  write_packed("val.bin.gz", 1000);
  EXPECT_EQ(need("tokens"), 12'000u) << "the first file's bytes are released by then";
  std::filesystem::remove(folder_ / "val.bin.gz");
  write("val.bin", 3000);
  EXPECT_EQ(need("tokens"), 12'000u) << "a plain file stays where it is";
}

TEST_F(LoadingMemory, OfATableIsItsText) {
  write("a.csv", 5000);
  EXPECT_EQ(need("csv"), 5000u);
  EXPECT_EQ(need("csv", folder_ / "a.csv"), 5000u);
  write("b.csv", 5000);
  EXPECT_EQ(need("csv"), 0u) << "which one is meant, loading asks";
}

}  // namespace
