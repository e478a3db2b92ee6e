// Folders of images: classes, order, the cache, random parts, and what is said about wrong folders
// and files.
#include "io/data/readers/image_files/image_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "io/data/images/image_source.h"
#include "io/data/loader/batch_loader.h"
#include "tests/io/data/images/png_bytes.h"
#include "tests/io/data/sources/dataset_fixture.h"

namespace io {
namespace {

namespace fs = std::filesystem;
using test_support::plain_png;

class ImageFolder : public dataset_fixture::DatasetFiles {
 protected:
  ImageFolder() : DatasetFiles("images") { options_.images.size = 4; }
  // 2 classes; image i of class c is all (10 i, c, 7), of another size each.
  void write_set(std::uint8_t count = 5) {
    for (std::uint8_t i = 0; i < count; ++i)
      for (const std::string name : {"ant", "bee"})
        for (const std::string part : {"train/", "val/"})
          write(part + name + "/" + static_cast<char>('a' + i) + ".png",
                plain_png(4 + i, 9 - i, static_cast<std::uint8_t>(10 * i), name == "bee", 7));
  }
  using Seen =
      std::map<std::pair<std::int64_t, std::int64_t>, std::vector<float>>;  // by epoch and sample
  static Seen see(const Dataset& set, int world_size, int workers,
                  const Augmentation& augmentation) {
    Seen seen;
    for (int rank = 0; rank < world_size; ++rank) {
      const SamplerOptions order{.size = set.size(),
                                 .global_batch = 4,
                                 .rank = rank,
                                 .world_size = world_size,
                                 .shuffle = true};
      const std::int64_t steps = 4 * Sampler(order).steps_per_epoch();
      BatchLoader loader(set, order, {Normalization::kUnit, workers, 3, augmentation});
      for (std::int64_t step = 0; step < steps; ++step) {
        const Batch& batch = loader.next();
        for (std::size_t i = 0; i < batch.sample_ids.size(); ++i) {
          const auto pixels = batch.samples.subspan(i * 48, 48);
          seen.try_emplace({batch.epoch, batch.sample_ids[i]}, pixels.begin(), pixels.end());
        }
      }
    }
    return seen;
  }
};

TEST_F(ImageFolder, ClassesAreFoldersAndPathsGiveTheOrder) {
  write_set(3);
  write("train/ant/deeper/A.PNG", plain_png(4, 4, 99, 0, 7));
  write("train/ant/notes.txt", "no image");
  write("train/ant/.hidden.png", "no image");
  write("train/list.csv", "no class");
  const DatasetSplits splits = load();
  EXPECT_EQ(splits.train.classes(), 2);
  EXPECT_EQ(splits.train.shape(), (std::array<std::int64_t, 3>{4, 4, 3}));
  EXPECT_EQ(splits.train.as<ClassLabels>().ids, (std::vector<std::int32_t>{0, 0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(splits.test.as<ClassLabels>().ids, (std::vector<std::int32_t>{0, 0, 0, 1, 1, 1}));
  EXPECT_FLOAT_EQ(splits.train.as<ImageSamples>().format.mean[0], 0.485f);
  const std::vector<int> reds{0, 10, 20, 99, 0, 10, 20};  // a, b, c, deeper/A; then bee
  std::vector<std::uint8_t> image(48);
  for (std::size_t i = 0; i < reds.size(); ++i) {
    splits.train.as<ImageSamples>().source->read(static_cast<std::int64_t>(i), nullptr, image);
    for (std::size_t k = 0; k < 48; ++k)
      ASSERT_EQ(image[k], k % 3 == 0 ? reds[i] : k % 3 == 1 ? i >= 4 : 7) << i;
  }
}

TEST_F(ImageFolder, ALimitTakesImagesOfAllClasses) {
  write_set(5);
  const DatasetSplits all = load();
  options_.limit = 4;
  const DatasetSplits few = load();
  EXPECT_EQ(few.train.as<ClassLabels>().ids, (std::vector<std::int32_t>{0, 0, 1, 1}));
  EXPECT_EQ(few.test.size(), all.test.size());
  std::vector<std::uint8_t> image(48);
  for (std::int64_t i = 0; i < 4; ++i) {
    few.train.as<ImageSamples>().source->read(i, nullptr, image);
    EXPECT_EQ(image[1], i / 2);  // the class, in green
  }
}

TEST_F(ImageFolder, TestMayStandForVal) {
  write_set();
  fs::rename(folder_ / "val", folder_ / "test");
  EXPECT_EQ(load().test.size(), 10);
  fs::rename(folder_ / "test", folder_ / "other");
  expect_complaint<MissingFileError>({"/val", "/test"});
}

// val and test: training uses one of them and says which, and an option names the other.
TEST_F(ImageFolder, ValIsForTestingUnlessTestIsNamed) {
  write_set(3);
  for (const std::string name : {"ant", "bee"})
    write("test/" + name + "/z.png", plain_png(4, 4, 200, name == "bee", 7));
  for (const Parts parts : {Parts::kSplit, Parts::kHoldOut}) {
    options_.parts = parts;
    options_.test_part = "";
    const DatasetSplits both = load();
    EXPECT_EQ(both.test.size(), 6);
    EXPECT_EQ(both.test_part, "val");
    ASSERT_EQ(both.warnings.size(), 1U);
    EXPECT_VALUES(both.warnings[0], ": val test; val, `engine eval --split test`");
    options_.test_part = "test";
    EXPECT_EQ(load().test.size(), 2);
    EXPECT_EQ(load().warnings, std::vector<std::string>{});
    options_.test_part = "val";
    EXPECT_EQ(load().test.size(), 6);
    EXPECT_EQ(load().warnings, std::vector<std::string>{});
  }
  fs::remove_all(folder_ / "test");
  options_.test_part = "test";
  EXPECT_EQ(load().test.size(), 6) << "val takes its place";
}

TEST_F(ImageFolder, AnyNumberOfWorkersAndRanksSeesTheSameImages) {
  write_set();
  for (const Augmentation& augmentation :
       {Augmentation{}, Augmentation{.resized_crop = true, .flip = true}}) {
    const Seen expected = see(load().train, 1, 0, augmentation);
    ASSERT_EQ(expected.size(), 40u);
    for (const int workers : {1, 4})
      EXPECT_EQ(see(load().train, 1, workers, augmentation), expected);
    for (const int ranks : {2, 3}) EXPECT_EQ(see(load().train, ranks, 2, augmentation), expected);
    options_.images.cache_bytes = 0;
    EXPECT_EQ(see(load().train, 1, 4, augmentation), expected);
    options_.images.cache_bytes = 1 << 20;
  }
}

TEST_F(ImageFolder, ImagesStayInMemoryWhereTheyFit) {
  write_set();
  for (const bool fits : {true, false}) {
    options_.images.cache_bytes = fits ? 480 : 479;
    const Dataset set = load().train;
    std::vector<std::uint8_t> image(48);
    set.as<ImageSamples>().source->read(3, nullptr, image);
    fs::rename(folder_ / "train/ant/d.png", folder_ / "away");
    if (fits) {
      set.as<ImageSamples>().source->read(3, nullptr, image);
      EXPECT_EQ(image[0], 30);
    } else {
      EXPECT_THROW(set.as<ImageSamples>().source->read(3, nullptr, image), MissingFileError);
    }
    fs::rename(folder_ / "away", folder_ / "train/ant/d.png");
  }
}

TEST_F(ImageFolder, ABrokenFileIsNamedWhenItsTurnComes) {
  write_set();
  write("train/bee/a.png", test_support::read_text(folder_ / "train/bee/a.png").substr(0, 50));
  const Dataset set = load().train;
  for (const int workers : {0, 2}) {
    BatchLoader loader(set, {.size = 10, .global_batch = 5, .shuffle = false},
                       {Normalization::kUnit, workers, 1});
    loader.next();
    const std::string error_text = test_support::error_of<DataError>([&] { loader.next(); });
    EXPECT_EQ(error_text.rfind(folder_ / "train/bee/a.png" + ": damaged PNG: ", 0), 0u)
        << error_text;
  }
}

// It takes no disk, but would take memory.
TEST_F(ImageFolder, ASparseFileIsNamedBeforeItIsRead) {
  write_set();
  std::filesystem::resize_file(folder_ / "train/bee/a.png", std::uintmax_t{1} << 40);
  const Dataset set = load().train;
  BatchLoader loader(set, {.size = 10, .global_batch = 10, .shuffle = false},
                     {Normalization::kUnit, 0, 1});
  EXPECT_VALUES(test_support::error_of<DataError>([&] { loader.next(); }),
                folder_ / "train/bee/a.png" + ": 1099511627776 bytes");
}

TEST_F(ImageFolder, WrongFoldersAreNamed) {
  expect_complaint<MissingFileError>({"/train", "CLASS/*.png", "--data-dir"});
  write_set();
  write("val/cat/a.png", plain_png(4, 4, 0, 0, 0));
  expect_complaint({"val/cat", "not in training"});
  fs::remove_all(folder_ / "val/cat");
  fs::create_directories(folder_ / "train/cat");
  expect_complaint({"train/cat", "no image"});
  write("train/cat/b.png", plain_png(4, 4, 0, 0, 0));
  EXPECT_EQ(load().train.classes(), 3);
  options_.images.size = 0;
  expect_complaint<ConfigError>({"expected 1..4096"});
}

TEST_F(ImageFolder, ASingleClassIsAFolderTooMuch) {
  for (const std::string name : {"ant", "bee"})
    for (const std::string part : {"train/all/", "val/all/"})
      write(part + name + "/a.png", plain_png(4, 4, 0, 0, 0));
  expect_complaint({"/train: found a single class, 'all', expected at least 2",
                    "/train/all 2 folders: 'ant', 'bee'"});
  options_.parts = Parts::kHoldOut;  // a hold-out may be of one class
  EXPECT_EQ(load().test.size(), 2);
  options_.parts = Parts::kSplit;
  fs::remove_all(folder_ / "train/all");
  write("train/all/a.png", plain_png(4, 4, 0, 0, 0));
  expect_complaint({"'all', expected at least 2", "/train/all are no folders"});
}

// Images that are not there, or not where a class is, must not be left out in silence.
TEST_F(ImageFolder, NothingWithAnImagesNameIsPassedOver) {
  write_set();
  const std::string missing = folder_ / "disk/a.png";
  fs::create_symlink(missing, folder_ / "train/bee/z.png");
  expect_complaint({"train/bee/z.png", "a link to " + missing, "not there"});
  write("disk/a.png", plain_png(4, 4, 0, 0, 0));
  EXPECT_EQ(load().train.size(), 11);
  ASSERT_EQ(mkfifo((folder_ / "val/ant/f.jpg").c_str(), 0600), 0);
  expect_complaint({"val/ant/f.jpg", "device pipe"});
  fs::remove(folder_ / "val/ant/f.jpg");
  write("train/stray.png", plain_png(4, 4, 0, 0, 0));
  expect_complaint({"train/stray.png /CLASS/stray.png"});
  fs::remove(folder_ / "train/stray.png");
  fs::create_directories(folder_ / "train/ant/more.png");
  EXPECT_EQ(load().train.size(), 11);
}

TEST(ResizedCrop, LiesInsideAndHasTheRightAreasAndRatios) {
  SplitMix random(5, 5);
  double areas = 0, logs = 0;
  constexpr int kDraws = 20'000;
  for (int i = 0; i < kDraws; ++i) {
    const ResizedCrop crop = draw_resized_crop(400, 400, random);
    ASSERT_GE(crop.left, 0);
    ASSERT_GE(crop.top, 0);
    ASSERT_LE(crop.left + crop.width, 400);
    ASSERT_LE(crop.top + crop.height, 400);
    const double area = static_cast<double>(crop.width * crop.height) / 160'000;
    const double ratio = static_cast<double>(crop.width) / static_cast<double>(crop.height);
    ASSERT_GE(area, 0.079);
    ASSERT_GE(ratio, 0.74);
    ASSERT_LE(ratio, 1.35);
    areas += area;
    logs += std::log(ratio);
  }
  EXPECT_NEAR(logs / kDraws, 0, 0.01);  // as often wide as tall
  EXPECT_GT(areas / kDraws, 0.45);      // 0.54 less what does not fit
  EXPECT_LT(areas / kDraws, 0.54);
  const ResizedCrop tall = draw_resized_crop(1000, 3, random);
  EXPECT_EQ(tall.width, 3);
  EXPECT_EQ(tall.height, 4);
}

}  // namespace
}  // namespace io
