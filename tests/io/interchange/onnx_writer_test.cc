// ONNX files, read back field by field (numbers: onnx.proto). Whether onnxruntime agrees:
// tests/tools/commands/onnx.
#include "io/interchange/onnx_writer.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/io/base/formats/protobuf_reader.h"
#include "tests/io/interchange/array_fixture.h"
#include "tests/support/expect_contains.h"

namespace {

using array_fixture::array_of;
using protobuf_reader::Message;

io::OnnxModel small_model() {
  io::OnnxModel model;
  model.name = "net";
  model.producer = "engine";
  model.producer_version = "0.1";
  model.nodes = {{.type = "Gemm",
                  .name = "fc/Gemm",
                  .inputs = {"input", "fc.weight"},
                  .outputs = {"logits"},
                  .attributes = {{"transB", std::int64_t{1}},
                                 {"alpha", 0.5F},
                                 {"list", std::vector<std::int64_t>{3, -1}}}}};
  model.constants = {array_of<float>("fc.weight", {1, 2, 3, 4, 5, 6})};
  model.constants[0].shape = {2, 3};
  model.inputs = {{.name = "input", .shape = {"batch", 3}}};
  model.outputs = {{.name = "logits", .type = io::DType::kI64, .shape = {"batch", 2}}};
  model.metadata = {{"run_id", "abc"}, {"empty", ""}};
  return model;
}

class OnnxFile : public testing::Test {
 protected:
  Message saved(const io::OnnxModel& model) {
    const std::uint64_t bytes = io::save_onnx(model, path_);
    const std::string text = test_support::read_text(path_);
    EXPECT_EQ(bytes, text.size());
    return Message(text);
  }
  void expect_refused(const io::OnnxModel& model, const std::string& values) {
    try {
      io::save_onnx(model, path_);
      FAIL() << "saved";
    } catch (const io::DataError& error) {
      EXPECT_VALUES(error.what(), values);
    }
    EXPECT_FALSE(std::filesystem::exists(path_));
  }

  test_support::TemporaryDirectory folder_;
  std::string path_ = folder_ / "m.onnx";
};

TEST_F(OnnxFile, ModelIsReadBack) {
  const Message model = saved(small_model());
  EXPECT_EQ(model.one(1).integer(), 8);  // ir_version
  EXPECT_EQ(model.one(2).bytes, "engine");
  EXPECT_EQ(model.one(3).bytes, "0.1");
  EXPECT_EQ(model.message(8).one(2).integer(), 17);
  EXPECT_TRUE(model.message(8).all(1).empty());  // ONNX's own domain
  const std::vector<Message> metadata = model.messages(14);
  ASSERT_EQ(metadata.size(), 2U);
  EXPECT_EQ(metadata[0].one(1).bytes, "run_id");
  EXPECT_EQ(metadata[0].one(2).bytes, "abc");
  EXPECT_EQ(metadata[1].one(2).bytes, "");
}

TEST_F(OnnxFile, NodesAreReadBack) {
  const Message graph = saved(small_model()).message(7);
  EXPECT_EQ(graph.one(2).bytes, "net");
  const Message node = graph.message(1);
  ASSERT_EQ(node.all(1).size(), 2U);
  EXPECT_EQ(node.all(1)[0].bytes, "input");
  EXPECT_EQ(node.all(1)[1].bytes, "fc.weight");
  EXPECT_EQ(node.one(2).bytes, "logits");
  EXPECT_EQ(node.one(3).bytes, "fc/Gemm");
  EXPECT_EQ(node.one(4).bytes, "Gemm");
  const std::vector<Message> attributes = node.messages(5);
  ASSERT_EQ(attributes.size(), 3U);
  EXPECT_EQ(attributes[0].one(1).bytes, "transB");
  EXPECT_EQ(attributes[0].one(3).integer(), 1);
  EXPECT_EQ(attributes[0].one(20).integer(), 2);
  EXPECT_EQ(attributes[1].one(2).real(), 0.5F);
  EXPECT_EQ(attributes[1].one(20).integer(), 1);
  ASSERT_EQ(attributes[2].all(8).size(), 2U);
  EXPECT_EQ(attributes[2].all(8)[0].integer(), 3);
  EXPECT_EQ(attributes[2].all(8)[1].integer(), -1);
  EXPECT_EQ(attributes[2].one(20).integer(), 7);
}

TEST_F(OnnxFile, WeightsInputsAndOutputsAreReadBack) {
  const io::OnnxModel written = small_model();
  const Message graph = saved(written).message(7);
  const Message weight = graph.message(5);
  EXPECT_EQ(weight.all(1)[0].integer(), 2);
  EXPECT_EQ(weight.all(1)[1].integer(), 3);
  EXPECT_EQ(weight.one(2).integer(), 1);
  EXPECT_EQ(weight.one(8).bytes, "fc.weight");
  const auto& data = written.constants[0].data;
  EXPECT_EQ(weight.one(9).bytes,
            std::string(reinterpret_cast<const char*>(data.data()), data.size()));
  const Message input = graph.message(11), tensor = input.message(2).message(1);
  EXPECT_EQ(input.one(1).bytes, "input");
  EXPECT_EQ(tensor.one(1).integer(), 1);
  const std::vector<Message> dimensions = tensor.message(2).messages(1);
  ASSERT_EQ(dimensions.size(), 2U);
  EXPECT_EQ(dimensions[0].one(2).bytes, "batch");
  EXPECT_EQ(dimensions[1].one(1).integer(), 3);
  EXPECT_EQ(graph.message(12).one(1).bytes, "logits");
  EXPECT_EQ(graph.message(12).message(2).message(1).one(1).integer(), 7);
}

TEST_F(OnnxFile, TheSameModelGivesTheSameBytes) {
  io::save_onnx(small_model(), path_);
  io::save_onnx(small_model(), folder_ / "again.onnx");
  EXPECT_EQ(test_support::read_text(path_), test_support::read_text(folder_ / "again.onnx"));
}

TEST_F(OnnxFile, RefusesWhatNoReaderWouldTake) {
  io::OnnxModel model = small_model();
  model.constants[0].shape = {2, 4};
  expect_refused(model, "'fc.weight' 24 bytes shape type, 32");
  model = small_model();
  model.nodes[0].name = "fc\xff";
  expect_refused(model, "it is not UTF-8");
  EXPECT_THROW(io::save_onnx(small_model(), folder_ / "none/m.onnx"), io::CannotCreateError);
}

}  // namespace
