// Which files of a folder are data: hidden ones, links, copies, and what is left out, for every
// reader.
#include "io/data/files/data_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/io/data/images/png_bytes.h"
#include "tests/io/data/sources/dataset_fixture.h"

namespace io {
namespace {

namespace fs = std::filesystem;
using test_support::plain_png;

class DataFolder : public dataset_fixture::DatasetFiles {
 protected:
  DataFolder() : DatasetFiles("text") {
    options_.text.context = 4;
    options_.images.size = 4;
  }
  void link(const std::string& target, const std::string& name) {
    fs::create_directories(fs::path(folder_ / name).parent_path());
    fs::create_symlink(target, folder_ / name);
  }
  void write_images() {
    for (const std::string name : {"train/ant/a.png", "train/bee/b.png", "val/ant/a.png"})
      write(name, plain_png(4, 4, 1, 2, 3));
  }
  void write_batches() {
    std::string record(3073, '\1');
    for (const std::string name : {"data_batch_1.bin", "data_batch_2.bin", "test_batch.bin"})
      write(name, record);
  }
};

TEST(OriginalName, OfCopies) {
  EXPECT_EQ(original_name("input.txt"), "input.txt");
  EXPECT_EQ(original_name("input.txt.gz"), "input.txt");
  EXPECT_EQ(original_name("data_batch_1 (1).bin"), "data_batch_1.bin");
  EXPECT_EQ(original_name("a(12).csv.gz"), "a.csv");
  EXPECT_EQ(original_name("a - Copy.csv"), "a.csv");
  EXPECT_EQ(original_name("a - Copy (2).csv"), "a.csv");
  EXPECT_EQ(original_name("a copy.csv"), "a.csv");
  EXPECT_EQ(original_name("a copy 3.csv"), "a.csv");
  EXPECT_EQ(original_name("Copy of a.csv"), "a.csv");
  for (const std::string plain : {"a 3.txt", "(1).txt", "photocopy.txt", "b (x).txt", ".gz", "a"})
    EXPECT_EQ(original_name(plain), plain);
}

TEST_F(DataFolder, HiddenFilesAreNoSamples) {
  const std::string text(200, 'x');
  write("input.txt", text);
  write("._input.txt", "a resource fork");
  write(".ipynb_checkpoints/input-checkpoint.txt", text);
  write("__MACOSX/._input.txt", "another");
  const DatasetSplits splits = load("text");
  EXPECT_EQ(
      splits.train.as<TokenSamples>().tokens.size() + splits.test.as<TokenSamples>().tokens.size(),
      200);
  EXPECT_EQ(splits.train.vocabulary(), "x");
  EXPECT_TRUE(splits.warnings.empty()) << splits.warnings.front();
  write("a.csv", "x,y\n1,a\n2,b\n3,a\n4,b\n");
  write("._a.csv", "a resource fork");
  EXPECT_EQ(load("csv").train.classes(), 2);
}

TEST_F(DataFolder, HiddenImagesAndFoldersAreNoSamples) {
  write_images();
  for (const std::string name :
       {"train/ant/._a.png", "train/ant/.ipynb_checkpoints/a-checkpoint.png", "train/.git/x.png",
        "train/__MACOSX/x.png", "train/.DS_Store"})
    write(name, plain_png(4, 4, 0, 0, 0));
  const DatasetSplits splits = load("images");
  EXPECT_EQ(splits.train.size(), 2);
  EXPECT_EQ(splits.train.classes(), 2);
  EXPECT_TRUE(splits.warnings.empty()) << splits.warnings.front();
}

TEST_F(DataFolder, CopiesAreRefusedWithBothNames) {
  const std::string text(200, 'x');
  write("input.txt", text);
  for (const std::string name : {"input.txt.gz", "input (1).txt", "input - Copy.txt"}) {
    write(name, text);
    expect_complaint("text", {folder_ / name, folder_ / "input.txt"});
    fs::remove(folder_ / name);
  }
  write("chapter (1).txt", text);  // numbers alone, without what they would be copies of
  write("chapter (2).txt", text);
  EXPECT_EQ(load("text").train.as<TokenSamples>().tokens.size(), 540);
  write_batches();
  write("data_batch_1 (1).bin", std::string(3073, '\2'));
  expect_complaint("cifar10", {folder_ / "data_batch_1 (1).bin", folder_ / "data_batch_1.bin"});
  write("a.csv", "x,y\n1,a\n2,b\n");
  write("a.csv.gz", "packed");
  expect_complaint("csv", {folder_ / "a.csv", folder_ / "a.csv.gz"});
}

// Programs number pictures, too: only equal ones are copies.
TEST_F(DataFolder, CopiesOfImagesAreRefusedIfTheirBytesAreEqual) {
  write_images();
  write("train/ant/a (1).png", plain_png(4, 4, 9, 9, 9));
  EXPECT_EQ(load("images").train.size(), 3);
  write("train/ant/a (2).png", plain_png(4, 4, 1, 2, 3));
  expect_complaint("images",
                   {folder_ / "train/ant/a (2).png", folder_ / "train/ant/a.png", "byte"});
}

TEST_F(DataFolder, LinksAreFollowed) {
  write_images();
  write("elsewhere/c.png", plain_png(4, 4, 1, 2, 3));
  write("elsewhere/deeper/d.png", plain_png(4, 4, 1, 2, 3));
  link(folder_ / "elsewhere", "train/cat");       // a class
  link(folder_ / "elsewhere", "train/ant/more");  // a folder of images
  link(folder_ / "train/bee/b.png", "train/ant/e.png");
  const DatasetSplits splits = load("images");
  EXPECT_EQ(splits.train.class_names(), (std::vector<std::string>{"ant", "bee", "cat"}));
  EXPECT_EQ(splits.train.as<ClassLabels>().ids, (std::vector<std::int32_t>{0, 0, 0, 0, 1, 2, 2}));
}

TEST_F(DataFolder, LinksToNothingAreRefused) {
  write_images();
  const std::string missing = folder_ / "not-mounted";
  for (const std::string name : {"train/cat", "train/ant/more", "val/cat", "train/ant/x.png"}) {
    link(missing, name);
    expect_complaint("images", {folder_ / name, "a link to " + missing, "which is not there"});
    fs::remove(folder_ / name);
  }
  fs::rename(folder_ / "val", folder_ / "test");
  link(missing, "val");
  expect_complaint("images", {folder_ / "val", "a link to " + missing});
  write("input.txt", std::string(200, 'x'));
  link(missing, "notes.md");  // no text
  EXPECT_EQ(load("text").test.as<TokenSamples>().tokens.size(), 20);
  link(missing, "more.txt");
  expect_complaint("text", {folder_ / "more.txt", "a link to " + missing, "which is not there"});
  write_batches();
  link(missing, "data_batch_3.bin");
  expect_complaint("cifar10", {folder_ / "data_batch_3.bin", "a link to " + missing});
  link(missing, "train-images-idx3-ubyte");
  expect_complaint("mnist", {folder_ / "train-images-idx3-ubyte", "a link to " + missing});
}

TEST_F(DataFolder, CirclesOfLinksAreRefused) {
  write_images();
  link(folder_ / "train", "train/ant/up");
  expect_complaint("images", {"train/ant/up", "a link back to a folder that it lies in"});
  fs::remove(folder_ / "train/ant/up");
  link(folder_ / "train/ant/loop", "train/ant/loop");
  expect_complaint("images", {"train/ant/loop", "leads back to itself"});
}

TEST_F(DataFolder, LeftOutFilesAreCountedInOneLine) {
  write_images();
  for (const std::string name : {"train/ant/1.webp", "train/ant/2.WEBP", "train/bee/3.bmp",
                                 "train/bee/deep/4.tif", "train/list.csv", "train/bee/LICENSE"})
    write(name, "x");
  const DatasetSplits splits = load("images");
  ASSERT_EQ(splits.warnings.size(), 1u);
  EXPECT_EQ(splits.warnings[0],
            (folder_ / "train") +
                ": left out 1 *.bmp, 1 *.csv, 1 *.tif, 2 *.webp, 1 file without an ending; images "
                "are *.png, *.jpg and *.jpeg");
  write("input.txt", std::string(200, 'x'));
  write("book.pdf", "x");
  EXPECT_EQ(
      load("text").warnings,
      std::vector<std::string>{folder_.path().string() +
                               ": left out 1 *.pdf, 2 folders; texts are *.txt and *.txt.gz"});
  fs::remove_all(folder_ / "train");
  fs::remove_all(folder_ / "val");
  write_batches();
  write("readme.html", "x");
  write("batches.meta.txt", "x");
  EXPECT_EQ(load("cifar10").warnings.size(), 1u) << "input.txt and book.pdf";
}

TEST_F(DataFolder, AFolderThatIsMissingIsNamed) {
  write_images();
  DatasetOptions options;
  fs::create_directories(folder_ / "animals/train/ant");
  for (const std::string name : {"images", "images of several labels", "text", "csv", "tokens",
                                 "arrays", "cifar10", "mnist"}) {
    options.name = name.substr(0, name.find(' '));
    options.task = name == options.name ? Task::kClassification : Task::kMultiLabel;
    options.directory = folder_ / "anmials";
    try {
      load_dataset(options);
      ADD_FAILURE() << name;
    } catch (const MissingFileError& error) {
      const std::string text = error.what();
      EXPECT_CONTAINS(text, "no folder " + options.directory);
      if (name != "cifar10" && name != "mnist") {  // which name the command that fetches them
        EXPECT_CONTAINS(text, "did you mean 'animals'");
      }
    }
  }
  fs::rename(folder_ / "train", folder_ / "trian");
  expect_complaint<MissingFileError>("images", {"no folder train in " + folder_.path().string()});
}

TEST_F(DataFolder, PipesWithTheNamesOfDataAreRefused) {
  ASSERT_EQ(mkfifo((folder_ / "a.txt").c_str(), 0600), 0);
  expect_complaint("text", {folder_ / "a.txt", "device pipe"});
}

TEST_F(DataFolder, SmallImagesAreNotEnlargedWithoutAWord) {
  DatasetOptions options;
  options.name = "images";
  options.directory = folder_.path().string();
  write_images();
  options.images.size = 9;
  const DatasetSplits splits = load_dataset(options);
  ASSERT_EQ(splits.warnings.size(), 1u);
  EXPECT_VALUES(splits.warnings[0], (folder_ / "train/ant/a.png") + " 4 x 4 9 x 9 --image-size 4");
  options.images.size = 4;
  EXPECT_TRUE(load_dataset(options).warnings.empty());
}

}  // namespace
}  // namespace io
