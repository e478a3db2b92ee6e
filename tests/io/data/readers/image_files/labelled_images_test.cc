// Folders of images with several labels each: the table beside them, and what is said about tables
// and images that do not fit.
#include "io/data/readers/image_files/labelled_images.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "io/data/dataset/sample_coding.h"
#include "io/data/images/image_source.h"
#include "tests/io/data/images/png_bytes.h"
#include "tests/io/data/sources/dataset_fixture.h"
#include "tests/support/expect_contains.h"

namespace io {
namespace {

class LabelledImages : public dataset_fixture::DatasetFiles {
 protected:
  LabelledImages() : DatasetFiles("images") {
    options_.images.size = 2;
    options_.task = Task::kMultiLabel;
    for (const std::string part : {"train/", "val/"}) {
      for (const int i : {0, 1, 2})
        write(part + "below/" + std::to_string(i) + ".png",
              test_support::plain_png(2, 2, static_cast<std::uint8_t>(10 * i), 5, 7));
      write(part + "labels.csv", kTable);
    }
  }

  static constexpr const char* kTable =
      "file,cat,dog\nbelow/2.png,1,0\nbelow/0.png,,1\nbelow/1.png,0,0\n";
};

TEST_F(LabelledImages, HaveTheOrderAndTheLabelsOfTheTable) {
  const DatasetSplits splits = load();
  for (const Dataset* part : {&splits.train, &splits.test}) {
    const auto& labels = part->as<MultiLabels>();
    EXPECT_EQ(labels.names, (std::vector<std::string>{"cat", "dog"}));
    EXPECT_EQ(part->size(), 3);
    EXPECT_EQ(labels.values[0], 1);
    EXPECT_TRUE(std::isnan(labels.values[2]));
    EXPECT_EQ(labels.values[3], 1);
    std::vector<std::uint8_t> pixels(12);
    part->as<ImageSamples>().source->read(0, nullptr, pixels);
    EXPECT_EQ(pixels[0], 20) << "below/2.png";
  }
  EXPECT_EQ(splits.warnings, std::vector<std::string>{});
}

TEST_F(LabelledImages, AWarningCountsImagesWithoutARow) {
  write("train/below/more.png", test_support::plain_png(2, 2, 1, 2, 3));
  const DatasetSplits splits = load();
  ASSERT_EQ(splits.warnings.size(), 1U);
  EXPECT_VALUES(splits.warnings[0], "1 images labels.csv");
}

TEST_F(LabelledImages, ValIsForTestingUnlessTestIsNamed) {
  write("test/0.png", test_support::plain_png(2, 2, 1, 2, 3));
  write("test/labels.csv", "file,cat,dog\n0.png,1,0\n");
  const DatasetSplits both = load();
  EXPECT_EQ(both.test.size(), 3);
  ASSERT_EQ(both.warnings.size(), 1U);
  EXPECT_VALUES(both.warnings[0], "val test val");
  options_.test_part = "test";
  EXPECT_EQ(load().test.size(), 1);
}

TEST_F(LabelledImages, LabelsOfOneNameAreRenamed) {
  for (const std::string part : {"train/", "val/"})
    write(part + "labels.csv",
          "file,in,in,\nbelow/2.png,1,0,1\nbelow/0.png,,1,0\nbelow/1.png,1,1,\n");
  const DatasetSplits splits = load();
  EXPECT_EQ(splits.train.as<MultiLabels>().names,
            (std::vector<std::string>{"in", "in.1", "column 4"}));
  ASSERT_GE(splits.warnings.size(), 2U);
  EXPECT_VALUES(splits.warnings[0], "train/labels.csv column 3 'in' 'in.1'");
  EXPECT_VALUES(splits.warnings[1], "train/labels.csv column 4");
}

TEST_F(LabelledImages, NamesTheRowThatDoesNotFit) {
  const auto complaint_of = [&](const std::string& table) {
    write("train/labels.csv", table);
    return complaint();
  };
  EXPECT_CONTAINS(complaint_of("file,cat,dog\nbelow/9.png,1,0\n"),
                  "row 2 (line 2): found no image 'below/9.png' in ");
  EXPECT_CONTAINS(complaint_of("file,cat,dog\n../val/below/1.png,1,0\n"), "found no image");
  EXPECT_VALUES(complaint_of("file,cat,dog\nbelow/1.png,1,0\nbelow/1.png,1,0\n"),
                "row 3 (line 3): 'below/1.png' row 2");
  EXPECT_CONTAINS(complaint_of("file,cat,dog\nbelow/1.png,1,2\n"),
                  "row 2 (line 2): found '2' in column 3 ('dog'), a label, expected 0 or 1");
  EXPECT_CONTAINS(complaint_of("file,cat,dog\n"), "found 3 columns and 1 rows");
  EXPECT_VALUES(complaint_of("below/1.png,1,0\nbelow/2.png,1,1\n"),
                "row 1 line 1 'below/1.png' columns");
  EXPECT_CONTAINS(complaint_of("file,cat\nbelow/1.png,1\n"),
                  "val/labels.csv: found the labels cat, dog, expected those of ");
  remove("train/labels.csv");
  EXPECT_CONTAINS(complaint<MissingFileError>(), "train/labels.csv: --task multi-label expects");
}

TEST_F(LabelledImages, AModelsLabelsAreThoseOfItsCheckpoint) {
  auto coding = std::make_shared<SampleCoding>(
      SampleCoding{.like = load().train.like(), .source = "run/step-8.ckpt"});
  options_.coding = coding;
  options_.parts = Parts::kHoldOut;
  EXPECT_EQ(load().test.size(), 3);
  coding->like.as<MultiLabels>().names = {"dog", "cat"};
  EXPECT_CONTAINS(complaint(), "expected those of the model of run/step-8.ckpt: dog, cat");
}

}  // namespace
}  // namespace io
