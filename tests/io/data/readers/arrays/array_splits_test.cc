// The data set of .npz files: samples in the engine's order, labels of samples and of positions,
// batches of them, and what is said of files that are none.
#include "io/data/readers/arrays/array_splits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "io/data/dataset/sample_coding.h"
#include "io/data/readers/arrays/array_inputs.h"
#include "io/data/sources/loading_memory.h"
#include "io/interchange/numpy/npy_header.h"
#include "io/interchange/numpy/npz.h"
#include "tests/io/data/sources/dataset_fixture.h"
#include "tests/io/interchange/array_fixture.h"
#include "tests/support/expect_contains.h"

namespace io {
namespace {

using array_fixture::array_of;

NamedArray floats(std::vector<std::int64_t> shape, const std::vector<float>& values) {
  return array_of("x", std::move(shape), values);
}
NamedArray classes(std::vector<std::int64_t> shape, const std::vector<std::int64_t>& values) {
  return array_of("y", std::move(shape), values);
}

class ArraySplits : public dataset_fixture::DatasetFiles {
 protected:
  ArraySplits() : DatasetFiles("arrays") {}

  void save(const std::string& name, const std::vector<NamedArray>& arrays) {
    save_npz(arrays, options_.directory + "/" + name);
  }
  void save_both(const NamedArray& x, const NamedArray& y) {
    save("train.npz", {x, y});
    save("test.npz", {x, y});
  }
};

// [2 samples, 2 channels, 1 row, 2 columns]
const std::vector<float> kImages{1, 2, 3, 4, 5, 6, 7, 8};

TEST_F(ArraySplits, ImagesHaveTheirChannelsLastAndLabelsOfPixels) {
  options_.arrays.ignored_label = 255;
  save("train.npz", {floats({2, 2, 1, 2}, kImages), classes({2, 1, 2}, {0, 255, 2, 1})});
  save("val.npz", {floats({1, 2, 1, 2}, {9, 8, 7, 6}), classes({1, 1, 2}, {2, 255})});
  const DatasetSplits splits = load();
  const auto& samples = splits.train.as<ArraySamples>();
  EXPECT_EQ(samples.extents, (std::array<std::int64_t, 3>{1, 2, 2}));
  EXPECT_EQ(samples.values, (std::vector<float>{1, 3, 2, 4, 5, 7, 6, 8}));
  const auto& labels = splits.train.as<PositionLabels>();
  EXPECT_EQ(labels.ids, (std::vector<std::int32_t>{0, PositionLabels::kIgnored, 2, 1}));
  EXPECT_EQ(labels.extents, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(splits.train.classes(), 3);
  EXPECT_EQ(splits.test.classes(), 3);
  EXPECT_EQ(splits.train.positions(), 2);
  EXPECT_EQ(splits.train.size(), 2);
  EXPECT_EQ(splits.train.loss_weights(), (std::vector<double>{1, 2}));
  EXPECT_EQ(splits.test.as<ArraySamples>().values, (std::vector<float>{9, 7, 8, 6}));
  EXPECT_EQ(splits.warnings, std::vector<std::string>{});
}

TEST_F(ArraySplits, BytesAreScaledAndOtherNumbersAreNot) {
  const NamedArray y = classes({1}, {0});
  save_both(array_of<std::uint8_t>("x", {1, 1, 1, 2}, {0, 255}), y);
  EXPECT_EQ(load().train.as<ArraySamples>().values, (std::vector<float>{0, 1}));
  save_both(array_of<double>("x", {1, 1, 1, 2}, {0.5, 255}), y);
  EXPECT_EQ(load().train.as<ArraySamples>().values, (std::vector<float>{0.5, 255}));
  save_both(array_of<std::int32_t>("x", {1, 1, 1, 2}, {-3, 255}), y);
  EXPECT_EQ(load().train.as<ArraySamples>().values, (std::vector<float>{-3, 255}));
}

// Bytes are on another scale than other numbers, in both parts and in the data of a model.
TEST_F(ArraySplits, BytesAndOtherNumbersAreNotMixed) {
  const NamedArray y = classes({1}, {0}), bytes = array_of<std::uint8_t>("x", {1, 2}, {0, 255}),
                   halves = array_of<std::uint8_t>("x", {1, 1, 2}, {0, 255}),
                   numbers = floats({1, 1, 2}, {0, 255}),
                   whole = array_of<std::int64_t>("x", {1, 1, 2}, {0, 255});
  save("train.npz", {halves, y});
  save("test.npz", {numbers, y});
  EXPECT_VALUES(complaint(), "test.npz: x float32, train.npz uint8; 255 uint8");
  save("train.npz", {numbers, y});
  save("test.npz", {halves, y});
  EXPECT_VALUES(complaint(), "test.npz: x uint8, train.npz float32");
  save("test.npz", {whole, y});
  const DatasetSplits splits = load();
  EXPECT_EQ(splits.train.as<ArraySamples>().dtype, base::DType::kF32);
  save_both(halves, y);
  auto coding = std::make_shared<SampleCoding>(
      SampleCoding{.like = splits.train.like(), .source = "run/step-8.ckpt"});
  options_.coding = coding;
  for (const Parts parts : {Parts::kSplit, Parts::kHoldOut}) {
    options_.parts = parts;
    EXPECT_VALUES(complaint(), "test.npz: x uint8, run/step-8.ckpt float32");
  }
  const auto predict = [&] {
    open_array_samples(options_.directory + "/test.npz", coding->like.as<ArraySamples>());
  };
  EXPECT_VALUES(test_support::error_of<DataError>(predict), "test.npz: x uint8, model float32");
  coding->inputs_only = true;
  EXPECT_VALUES(complaint(), "test.npz: x uint8, run/step-8.ckpt float32");
  coding->like.as<ArraySamples>().dtype = std::nullopt;  // an earlier version wrote the checkpoint
  EXPECT_EQ(load().test.size(), 1);
  options_.coding = nullptr;
  options_.parts = Parts::kSplit;
  save("train.npz", {bytes, y});  // token ids are numbers of any dtype
  save("test.npz", {array_of<std::int64_t>("x", {1, 2}, {7, 9}), y});
  EXPECT_EQ(load().train.size(), 1);
}

TEST_F(ArraySplits, ShapesSayWhatAreSamples) {
  const auto shape_of = [&](const NamedArray& x, const NamedArray& y) {
    save_both(x, y);
    return load().train.model_shape();
  };
  using Extents = std::vector<std::int64_t>;
  const std::vector<float> six(6);
  EXPECT_EQ(shape_of(floats({1, 2, 3}, six), classes({1, 2}, {0, 1})), (Extents{1, 2, 3}));
  EXPECT_EQ(shape_of(floats({1, 2, 3}, six), classes({1, 2, 3}, {0, 1, 0, 1, 0, 1})),
            (Extents{2, 3, 1}));
  EXPECT_EQ(shape_of(floats({2, 3}, six), classes({2}, {0, 1})), (Extents{1, 1, 3}));
  const NamedArray tokens = array_of<std::int32_t>("x", {2, 3}, {5, 1, 2, 3, 4, 0});
  EXPECT_EQ(shape_of(tokens, classes({2, 3}, {0, 1, 0, 1, 0, 1})), (Extents{3}));
  EXPECT_EQ(load().train.as<ArraySamples>().ids, (std::vector<std::int32_t>{5, 1, 2, 3, 4, 0}));
}

TEST_F(ArraySplits, BatchesHaveLabelsAndWeightsOfEachPosition) {
  options_.arrays.ignored_label = -1;
  options_.class_weights = "0.3,2";
  const NamedArray tokens = array_of<std::int32_t>("x", {2, 2}, {5, 1, 2, 3});
  save_both(tokens, classes({2, 2}, {0, 1, -1, 1}));
  const Dataset train = load().train;
  BatchMemory memory;
  memory.ids = {1, 0};
  memory.batch.sample_ids = memory.ids;
  const auto samples = batch_part(train.samples, {.set = train.name, .size = train.size()});
  const auto labels = batch_part(train.labels, train.name, train.samples);
  for (const auto* part : {samples.get(), labels.get()}) {
    part->reserve(memory, 2);
    part->fill(memory);
  }
  const auto all = [](const auto& span) { return std::vector(span.begin(), span.end()); };
  EXPECT_EQ(all(memory.batch.tokens), (std::vector<std::int32_t>{2, 3, 5, 1}));
  EXPECT_EQ(all(memory.batch.labels),
            (std::vector<std::int32_t>{PositionLabels::kIgnored, 1, 0, 1}));
  EXPECT_EQ(all(memory.batch.weights), (std::vector<double>{0, 2, 0.3, 2}));
  EXPECT_EQ(train.loss_weights(), (std::vector<double>{2.3, 2}));
}

// Three positions of class 0 and one of class 1.
TEST_F(ArraySplits, BalancedWeightsCountPositions) {
  options_.arrays.ignored_label = -1;
  options_.class_weights = "balanced";
  save_both(floats({1, 5, 1}, {1, 2, 3, 4, 5}), classes({1, 5}, {0, -1, 0, 0, 1}));
  EXPECT_EQ(load().train.as<PositionLabels>().weights, (std::vector<double>{4.0 / 6, 2}));
}

TEST_F(ArraySplits, ALimitKeepsSamplesWithTheirLabels) {
  options_.limit = 1;
  save_both(floats({2, 2, 1}, {0, 0, 1, 1}), classes({2, 2}, {0, 0, 1, 1}));
  const Dataset train = load().train;
  EXPECT_EQ(train.size(), 1);
  const float value = train.as<ArraySamples>().values.at(0);
  EXPECT_EQ(train.as<ArraySamples>().values, (std::vector<float>{value, value}));
  EXPECT_EQ(train.as<PositionLabels>().ids,
            std::vector<std::int32_t>(2, static_cast<std::int32_t>(value)));
}

TEST_F(ArraySplits, AModelsClassesAreThoseOfItsCheckpoint) {
  save_both(floats({1, 2, 1}, {1, 2}), classes({1, 2}, {0, 1}));
  auto coding = std::make_shared<SampleCoding>(
      SampleCoding{.like = load().train.like(), .source = "run/step-8.ckpt"});
  coding->like.as<PositionLabels>().count = 5;
  options_.coding = coding;
  EXPECT_EQ(load().test.classes(), 5);
  save("test.npz", {floats({1, 2, 1}, {1, 2}), classes({1, 2}, {4, 5})});
  EXPECT_VALUES(complaint(), "test.npz: y[0, 1] 5, 0 4, run/step-8.ckpt");
  save("test.npz", {floats({1, 3, 1}, {1, 2, 3}), classes({1, 3}, {4, 0, 0})});
  remove("train.npz");
  options_.parts = Parts::kHoldOut;
  EXPECT_VALUES(complaint(), "differ run/step-8.ckpt");
  save("test.npz", {floats({1, 2, 1}, {1, 2}), classes({1, 2}, {4, 0})});
  EXPECT_EQ(load().train.size(), 0);
}

TEST_F(ArraySplits, SaysWhichLabelIsOutOfRangeAndWhere) {
  save("train.npz", {floats({2, 2, 1}, {1, 2, 3, 4}), classes({2, 2}, {0, 1, 2, 0})});
  save("test.npz", {floats({1, 2, 1}, {1, 2}), classes({1, 2}, {0, 3})});
  EXPECT_CONTAINS(complaint(), "test.npz: y[0, 1] is 3, expected 0 to 2, the classes of ");
  EXPECT_CONTAINS(complaint(), "--ignore-id");
  save("train.npz", {floats({1, 2, 1}, {1, 2}), classes({1, 2}, {0, -1})});
  EXPECT_CONTAINS(complaint(), "train.npz: y[0, 1] is -1, expected 0 to ");
}

TEST_F(ArraySplits, AsksWhetherALabelFarAboveTheOthersMarksPositions) {
  save_both(floats({1, 2, 1}, {1, 2}), classes({1, 2}, {2, 255}));
  const DatasetSplits splits = load();
  ASSERT_EQ(splits.warnings.size(), 1U);
  EXPECT_CONTAINS(splits.warnings[0], "none from 3 to 254 occurs");
  EXPECT_CONTAINS(splits.warnings[0], "--ignore-id 255");
}

TEST_F(ArraySplits, SaysThatNoPositionHasALabel) {
  options_.arrays.ignored_label = 7;
  options_.limit = 1;
  save_both(floats({1, 2, 1}, {1, 2}), classes({1, 2}, {7, 7}));
  EXPECT_CONTAINS(complaint(), "every label is the one of --ignore-id");
  auto coding = std::make_shared<SampleCoding>();
  coding->like.samples = ArraySamples{.extents = {1, 2, 1}};
  coding->like.labels = PositionLabels{.extents = {2}, .count = 3};
  options_.coding = coding;
  const DatasetSplits splits = load();
  ASSERT_EQ(splits.warnings.size(), 1U);
  EXPECT_CONTAINS(splits.warnings[0], "no position of the 1 training samples has a label");
  EXPECT_EQ(splits.train.loss_weights(), std::vector<double>{0});
}

// The two arrays, each in a file as numpy.save writes it.
class ArrayFolder : public ArraySplits {
 protected:
  void save_npy(const std::string& name, const NamedArray& array, bool fortran = false) {
    std::string header = write_npy_header(array.type, array.shape, name);
    if (fortran) header.replace(header.find("False"), 5, "True ");
    const auto* data = reinterpret_cast<const char*>(array.data.data());
    write(name, header + std::string(data, array.data.size()));
  }
};

TEST_F(ArrayFolder, HasTheArraysOfAnArchive) {
  const NamedArray x = floats({2, 2, 1, 2}, kImages), y = classes({2, 1, 2}, {0, 1, 2, 1});
  save_both(x, y);
  const DatasetSplits archive = load();
  remove("train.npz");
  remove("test.npz");
  save_npy("train_x.npy", x);
  save_npy("train_y.npy", y);
  save_npy("val_x.npy", x);
  save_npy("val_y.npy", y);
  const DatasetSplits folder = load();
  for (const Dataset* part : {&folder.train, &folder.test}) {
    EXPECT_EQ(part->as<ArraySamples>().values, archive.train.as<ArraySamples>().values);
    EXPECT_EQ(part->as<PositionLabels>().ids, archive.train.as<PositionLabels>().ids);
    EXPECT_EQ(part->classes(), 3);
  }
  EXPECT_EQ(loading_bytes(options_), 2U * (32 + 16) + (32 + 32));
}

// numpy.save writes the memory of a transposed array as it is.
TEST_F(ArrayFolder, ReadsArraysInFortranOrder) {
  const NamedArray y = classes({2}, {0, 1});
  for (const std::string part : {"train", "test"}) {
    save_npy(part + "_x.npy", floats({2, 3}, {1, 4, 2, 5, 3, 6}), true);
    save_npy(part + "_y.npy", y);
  }
  EXPECT_EQ(load().train.as<ArraySamples>().values, (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST_F(ArrayFolder, NamesFilesThatDoNotFit) {
  const NamedArray x = floats({1, 3}, {1, 2, 3}), y = classes({1}, {0});
  save_npy("test_x.npy", x);
  EXPECT_CONTAINS(complaint<MissingFileError>(), "test_x.npy, but no ");
  save_npy("test_y.npy", classes({2}, {0, 1}));
  save_npy("train_x.npy", x);
  save_npy("train_y.npy", y);
  EXPECT_VALUES(complaint(), "test_y.npy [2] 1 samples");
  save_npy("test_y.npy", classes({1}, {4}));
  EXPECT_CONTAINS(complaint(), "test_y.npy: y[0] is 4, expected 0 to 0, the classes of ");
  EXPECT_CONTAINS(complaint(), "train_y.npy");
  save_npy("test_y.npy", y);
  save_npy("test_x.npy", floats({1, 2}, {1, 2}));
  EXPECT_CONTAINS(complaint(), "differ from those of train_x.npy");
  write("test_x.npy", "not an array");
  EXPECT_CONTAINS(complaint(), "test_x.npy: ");
  save("test.npz", {x, y});
  EXPECT_CONTAINS(complaint(), "test_x.npy, expected one of them");
}

TEST_F(ArraySplits, NamesFilesThatAreNone) {
  EXPECT_CONTAINS(complaint<MissingFileError>(), "no test.npz in ");
  const NamedArray x = floats({1, 2, 1}, {1, 2}), y = classes({1, 2}, {0, 1});
  save("test.npz", {x, y});
  EXPECT_CONTAINS(complaint<MissingFileError>(), "no train.npz in ");
  save("train.npz", {x});
  EXPECT_CONTAINS(complaint(), "train.npz: found no array y; expected x and y");
  save("train.npz", {x, classes({2, 1}, {0, 1})});
  EXPECT_VALUES(complaint(), "y [2, 1] 1 samples");
  save("train.npz", {x, array_of<float>("y", {1, 2}, {0, 1})});
  EXPECT_VALUES(complaint(), "y f32, uint8, int32");
  save("train.npz", {floats({1, 1, 1, 1, 2}, {1, 2}), y});
  EXPECT_VALUES(complaint(), "x [1, 1, 1, 1, 2] [samples, channels");
  save("train.npz", {floats({1, 1, 2}, {1, 2}), y});
  EXPECT_VALUES(complaint(), "test.npz: shapes x y train.npz");
  save("train.npz", {x, y});
  save("val.npz", {x, y});
  EXPECT_CONTAINS(complaint(), "val.npz, expected one of them");
}

TEST_F(ArraySplits, NamesNumbersThatAreNotFinite) {
  const NamedArray y = classes({2}, {0, 1});
  save("test.npz", {floats({2, 2}, {1, 2, 3, 4}), y});
  save("train.npz", {floats({2, 2}, {1, 2, 3, std::numeric_limits<float>::quiet_NaN()}), y});
  EXPECT_CONTAINS(complaint(), "train.npz: x[1, 1] is nan, expected a finite number");
  save("train.npz", {array_of<double>("x", {2, 2}, {1, 1e300, 3, 4}), y});
  EXPECT_VALUES(complaint(), "train.npz: x[0, 1] 1e+300, float32");
}

TEST_F(ArraySplits, SaysHowImagesWithChannelsLastAreRead) {
  const std::vector<float> values(std::size_t{2} * 5 * 6 * 3, 1);
  save_both(floats({2, 5, 6, 3}, values), classes({2}, {0, 1}));
  const DatasetSplits splits = load();
  ASSERT_EQ(splits.warnings.size(), 1U);
  EXPECT_VALUES(splits.warnings[0], "train.npz: x [2, 5, 6, 3] 5 channels 6 x 3");
}

std::vector<float> known(const Dataset& set) {
  std::vector<float> values = set.as<MultiLabels>().values;
  for (float& value : values)
    if (std::isnan(value)) value = -1;
  return values;
}

TEST_F(ArraySplits, SeveralLabelsAreZeroOneOrUnknown) {
  options_.task = Task::kMultiLabel;
  const NamedArray x = floats({2, 2}, {1, 2, 3, 4});
  save_both(x, classes({2, 3}, {1, 0, -1, 0, 1, 1}));
  const Dataset train = load().train;
  EXPECT_EQ(known(train), (std::vector<float>{1, 0, -1, 0, 1, 1}));
  EXPECT_EQ(train.as<MultiLabels>().names, (std::vector<std::string>{"0", "1", "2"}));
  EXPECT_EQ(train.classes(), 3);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  save_both(x, array_of<float>("y", {2, 2}, {0, 1, nan, 1}));
  EXPECT_EQ(known(load().test), (std::vector<float>{0, 1, -1, 1}));
}

TEST_F(ArraySplits, SaysWhatSeveralLabelsAreNot) {
  options_.task = Task::kMultiLabel;
  const NamedArray x = floats({2, 2}, {1, 2, 3, 4});
  save_both(x, array_of<float>("y", {2, 2}, {0, 1, 0.5, 1}));
  EXPECT_VALUES(complaint(), "train.npz: y[1, 0] 0.5, 0, 1, -1");
  save_both(x, classes({2}, {0, 1}));
  EXPECT_VALUES(complaint(), "y [2] [samples, labels] --task multi-label");
  save("train.npz", {x, classes({2, 2}, {0, 1, 1, 1})});
  save("test.npz", {x, classes({2, 3}, {0, 1, 1, 1, 0, 0})});
  EXPECT_VALUES(complaint(), "test.npz shapes train.npz");
}

TEST_F(ArrayFolder, LabelsOfAnotherDtypeAreNamedWithWhatTheTaskExpects) {
  const NamedArray x = floats({2, 2}, {1, 2, 3, 4});
  for (const std::string part : {"train", "test"}) {
    save_npy(part + "_x.npy", x);
    std::string header = write_npy_header(DType::kU8, {2, 2}, "y");
    header.replace(header.find("|u1"), 3, "|b1");
    write(part + "_y.npy", header + std::string("\0\1\1\1", 4));
  }
  options_.task = Task::kMultiLabel;
  EXPECT_VALUES(complaint(), "0, 1 -1 uint8, int32, int64 y.astype('uint8')");
  options_.task = Task::kClassification;
  EXPECT_VALUES(complaint(), "uint8 int32 int64");
}

// Keras' MNIST is [n, 28, 28].
TEST_F(ArraySplits, SaysHowGrayImagesWithoutChannelsAreRead) {
  const auto warnings_of = [&](const NamedArray& x, const NamedArray& y) {
    save_both(x, y);
    return load().warnings;
  };
  const NamedArray y = classes({1}, {0});
  const std::string x = options_.directory + "/train.npz: x ";
  EXPECT_LINES(warnings_of(array_of<std::uint8_t>("x", {1, 2, 3}, {1, 2, 3, 4, 5, 6}), y),
               x + "[1, 2, 3], 3 features 2 positions x[:, None], [1, 1, 2, 3]");
  const std::vector<float> square(64, 1);
  EXPECT_LINES(warnings_of(floats({1, 8, 8}, square), y),
               x + "[1, 8, 8], x[:, None], [1, 1, 8, 8]");
  const std::vector<std::string> none;
  EXPECT_EQ(warnings_of(floats({1, 16, 4}, square), y), none) << "a sequence";
  EXPECT_EQ(warnings_of(floats({1, 1, 8, 8}, square), y), none);
  EXPECT_EQ(warnings_of(floats({1, 8, 8}, square), classes({1, 8}, {0, 1, 0, 1, 0, 1, 0, 1})), none)
      << "a sequence with a label for each position";
}

// x: 2 numbers of 4 bytes, y: 2 of 8; both become numbers of 4 bytes, a file after the other.
TEST_F(ArraySplits, LoadingNeedsWhatIsReadAndWhatIsKept) {
  save_both(floats({1, 2, 1}, {1, 2}), classes({1, 2}, {0, 1}));
  EXPECT_EQ(loading_bytes(options_), 2U * 16 + 24);
}

}  // namespace
}  // namespace io
