// The reader of ONNX: what the writer has written, the other codings of the format, data in another
// file, limits, and damage.
#include "io/interchange/onnx/onnx_reader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "io/base/formats/protobuf_message.h"
#include "io/interchange/onnx_writer.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace {

using base::ProtobufMessage;
using Ints = std::vector<std::int64_t>;

std::string raw(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

std::string model_of(ProtobufMessage graph, std::int64_t opset = 18) {
  ProtobufMessage sets, model;
  sets.integer(2, opset);
  model.text(2, "maker").text(3, "7").message(7, std::move(graph)).message(8, std::move(sets));
  return model.serialized();
}

ProtobufMessage tensor(std::int64_t type, const Ints& shape) {
  ProtobufMessage message;
  for (const std::int64_t extent : shape) message.integer(1, extent);
  message.integer(2, type).text(8, "w");
  return message;
}

ProtobufMessage external(const std::string& location, std::int64_t offset, std::int64_t length) {
  ProtobufMessage message = tensor(1, {3});
  for (const auto& [key, value] : {std::pair<std::string, std::string>{"location", location},
                                   {"offset", std::to_string(offset)},
                                   {"length", std::to_string(length)}}) {
    ProtobufMessage entry;
    entry.text(1, key).text(2, value);
    message.message(13, std::move(entry));
  }
  message.integer(14, 1);
  return message;
}

class OnnxReaderTest : public testing::Test {
 protected:
  io::OnnxReader read(const std::string& bytes) {
    test_support::write_text(path_, bytes);
    return io::OnnxReader(path_);
  }
  io::OnnxReader read(ProtobufMessage graph) { return read(model_of(std::move(graph))); }
  io::NamedArray loaded(ProtobufMessage message) {
    ProtobufMessage graph;
    graph.message(5, std::move(message));
    const io::OnnxReader reader = read(std::move(graph));
    return reader.load(reader.graph().constants.at(0));
  }
  template <class Call>
  static std::string fault(const Call& call) {
    try {
      call();
    } catch (const io::DataError& error) {
      return error.what();
    }
    return "";
  }
  std::string tensor_fault(ProtobufMessage message) {
    return fault([&] { loaded(std::move(message)); });
  }

  const test_support::TemporaryDirectory folder_;
  const std::string path_ = folder_ / "net.onnx";
};

// One after another, or packed.
TEST_F(OnnxReaderTest, ReadsListsOfFloatsOfNodes) {
  const std::vector<float> numbers{0.5F, -2, 3};
  const auto list_of = [&](ProtobufMessage attribute) {
    ProtobufMessage node, graph;
    attribute.text(1, "value_floats").integer(20, 6);
    node.text(4, "Constant").message(5, std::move(attribute));
    graph.message(1, std::move(node));
    const io::OnnxReader reader = read(std::move(graph));
    return std::get<std::vector<float>>(reader.graph().nodes.at(0).attributes.at(0).value);
  };
  ProtobufMessage single, packed;
  for (const float number : numbers) single.real32(7, number);
  EXPECT_EQ(list_of(std::move(single)), numbers);
  packed.text(7, raw(numbers));
  EXPECT_EQ(list_of(std::move(packed)), numbers);
  ProtobufMessage torn;
  torn.text(7, raw(numbers).substr(1));
  EXPECT_CONTAINS(fault([&] { list_of(std::move(torn)); }), "floats of 11 bytes");
}

TEST_F(OnnxReaderTest, ReadsWhatTheWriterHasWritten) {
  io::OnnxModel model;
  model.producer = "engine";
  model.producer_version = "1";
  model.metadata = {{"input", "pixels"}};
  model.nodes = {
      {.type = "Gemm",
       .name = "fc",
       .inputs = {"x", "w", ""},
       .outputs = {"y"},
       .attributes = {{"transB", std::int64_t{1}}, {"alpha", 0.5F}, {"list", Ints{3, -1}}}}};
  const std::string data = raw({1, 2, 3, 4, 5, 6});
  const auto bytes = std::as_bytes(std::span(data));
  model.constants = {{.name = "w", .shape = {2, 3}, .data = {bytes.begin(), bytes.end()}}};
  model.inputs = {{.name = "x", .shape = {"batch", 3}}};
  model.outputs = {{.name = "y", .shape = {"batch", 2}}};
  io::save_onnx(model, path_);
  const io::OnnxReader reader(path_);
  const io::OnnxGraph& graph = reader.graph();
  EXPECT_EQ(graph.opset, io::kOnnxOpset);
  EXPECT_EQ(graph.producer, "engine 1");
  EXPECT_EQ(graph.metadata, (io::OnnxMetadata{{"input", "pixels"}}));
  ASSERT_EQ(graph.nodes.size(), 1U);
  EXPECT_EQ(graph.nodes[0].inputs, (std::vector<std::string>{"x", "w", ""}));
  EXPECT_EQ(std::get<std::int64_t>(graph.nodes[0].attributes.at(0).value), 1);
  EXPECT_EQ(std::get<float>(graph.nodes[0].attributes.at(1).value), 0.5F);
  EXPECT_EQ(std::get<Ints>(graph.nodes[0].attributes.at(2).value), (Ints{3, -1}));
  EXPECT_EQ(graph.inputs.at(0).shape, (Ints{-1, 3}));
  EXPECT_EQ(graph.outputs.at(0).name, "y");
  const io::NamedArray array = reader.load(graph.constants.at(0));
  EXPECT_EQ(array.shape, (Ints{2, 3}));
  EXPECT_EQ(array.data, model.constants[0].data);
}

ProtobufMessage entry(const std::string& key, const std::string& value) {
  ProtobufMessage message;
  message.text(1, key).text(2, value);
  return message;
}

// Keeps only the keys of a graph that tell parameters from buffers.
TEST_F(OnnxReaderTest, ReadsWhatAnExporterSaysOfItsTensors) {
  ProtobufMessage graph, node, value, other;
  node.text(2, "y").text(4, "Relu");
  for (const auto& [key, text] : {std::pair<std::string, std::string>{io::kOnnxRule, "FuseX"},
                                  {"stack_trace", "a.py"},
                                  {io::kOnnxScopes, "['', 'fc', 'y']"}})
    node.message(9, entry(key, text));
  value.text(1, "val_3").message(4, entry("note", "n")).message(4, entry(io::kOnnxFoldedFrom, "w"));
  other.text(1, "val_4").message(4, entry("note", "n"));
  graph.message(1, std::move(node)).message(13, std::move(value)).message(13, std::move(other));
  graph.message(16, entry("note", "n")).message(16, entry(io::kOnnxSignature, "a: PARAMETER"));
  const io::OnnxReader reader = read(std::move(graph));
  const io::OnnxGraph& found = reader.graph();
  EXPECT_EQ(found.metadata, (io::OnnxMetadata{{io::kOnnxSignature, "a: PARAMETER"}}));
  EXPECT_EQ(found.nodes.at(0).rule, "FuseX");
  EXPECT_EQ(found.nodes.at(0).scopes, "['', 'fc', 'y']");
  EXPECT_EQ(found.folded_from, (std::unordered_map<std::string, std::string>{{"val_3", "w"}}));
}

TEST_F(OnnxReaderTest, ReadsNumbersInTheirOwnFields) {
  EXPECT_EQ(loaded(tensor(1, {2}).text(4, raw({1.5F, -2}))).data.size(), 8U);
  const io::NamedArray wide = loaded(tensor(7, {3}).text(7, std::string("\x05\x80\x01\x00", 4)));
  Ints values(3);
  std::memcpy(values.data(), wide.data.data(), wide.data.size());
  EXPECT_EQ(values, (Ints{5, 128, 0}));
  // f16 as varints, packed and single.
  for (ProtobufMessage half : {tensor(10, {1}).text(5, "\x80\x78")}) {
    const io::NamedArray found = loaded(std::move(half));
    EXPECT_EQ(found.type, io::DType::kF16);
    ASSERT_EQ(found.data.size(), 2U);
    EXPECT_EQ(found.data[1], std::byte{0x3C});  // 1.0
  }
}

TEST_F(OnnxReaderTest, ReadsDataBesideTheModel) {
  test_support::write_text(folder_ / "net.onnx.data", "1234" + raw({7, 8, 9}));
  const io::NamedArray found = loaded(external("net.onnx.data", 4, 12));
  float last = 0;
  std::memcpy(&last, found.data.data() + 8, sizeof last);
  EXPECT_EQ(last, 9);
  EXPECT_VALUES(tensor_fault(external("net.onnx.data", 5, 12)), "net.onnx.data: 12 bytes 5, 16");
  EXPECT_VALUES(tensor_fault(external("net.onnx.data", 4, 8)), "shape type 12");
  EXPECT_CONTAINS(tensor_fault(external("net.onnx.data", -1, 12)), "offset is '-1'");
  EXPECT_CONTAINS(tensor_fault(external("none.data", 0, 12)), "none.data");
  for (const std::string path : {"../a", "/etc/passwd", "a/b", "..", ".", "", "a\\b"})
    EXPECT_VALUES(tensor_fault(external(path, 0, 12)), "file beside") << path;
  std::filesystem::create_symlink("net.onnx.data", folder_ / "link.data");
  EXPECT_CONTAINS(tensor_fault(external("link.data", 4, 12)), "link.data");
}

TEST_F(OnnxReaderTest, RefusesWhatItDoesNotRead) {
  const auto whole = [&](const std::string& bytes) { return fault([&] { read(bytes); }); };
  EXPECT_CONTAINS(whole(model_of({}, 12)), "operator set 12, expected 13 to 23");
  EXPECT_CONTAINS(whole(model_of({}, 24)), "operator set 24, expected 13 to 23");
  EXPECT_EQ(whole(model_of({}, 23)), "");
  EXPECT_CONTAINS(whole(""), "it has no graph");
  EXPECT_CONTAINS(whole(model_of({}) + model_of({})), "a second graph");
  EXPECT_CONTAINS(whole("hello, world"), "at byte 2: wire type 4, expected 0, 1, 2 or 5");
  EXPECT_CONTAINS(whole(model_of({}) + std::string("\xCA\x01\x00", 3)), "functions of its own");
  EXPECT_CONTAINS(tensor_fault(tensor(1, {2, -1}).text(9, "")), "has an extent of -1");
  EXPECT_CONTAINS(tensor_fault(tensor(1, {INT64_MAX, 8}).text(9, "")), "too many elements");
  EXPECT_VALUES(tensor_fault(tensor(1, {3}).text(9, "12345678")), "8 bytes shape type 12");
  EXPECT_CONTAINS(tensor_fault(tensor(7, {1}).text(7, "\x01\x02")), "more than 1 numbers");
  EXPECT_CONTAINS(tensor_fault(tensor(8, {1})), "ONNX's type 8, expected f32");
  EXPECT_CONTAINS(tensor_fault(tensor(1, Ints(9, 1)).text(9, "1234")), "more than 8 numbers");
  ProtobufMessage node, graph;
  node.text(1, std::string(io::kMaxOnnxText + 1, 'a'));
  graph.message(1, std::move(node));
  EXPECT_VALUES(whole(model_of(std::move(graph))), "field 1 text 4097 bytes, 4096");
}

// Any change gives another model or a DataError, and never an allocation beyond the file.
TEST_F(OnnxReaderTest, SurvivesDamage) {
  io::OnnxModel model;
  const std::string data = raw({1, 2});
  const auto bytes = std::as_bytes(std::span(data));
  model.nodes = {{"Relu", "r", {"x"}, {"y"}, {{"a", Ints{1, 2}}, {"b", 1.0F}}}};
  model.constants = {{.name = "w", .shape = {2}, .data = {bytes.begin(), bytes.end()}}};
  model.inputs = {{.name = "x", .shape = {"batch", 3}}};
  model.outputs = {{.name = "y", .shape = {"batch", 3}}};
  io::save_onnx(model, path_);
  const std::string good = test_support::read_text(path_);
  const auto try_reading = [](const std::string& damaged) {
    try {
      const io::OnnxReader reader(
          io::memory_bytes(std::as_bytes(std::span(damaged)), "damaged.onnx"));
      for (const io::StoredTensor& each : reader.graph().constants) reader.load(each);
      return true;
    } catch (const io::DataError&) {
      return false;
    }
  };
  ASSERT_TRUE(try_reading(good));
  int refused = 0;
  for (std::size_t length = 0; length < good.size(); ++length)
    refused += try_reading(good.substr(0, length)) ? 0 : 1;
  for (std::size_t at = 0; at < good.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = good;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      refused += try_reading(damaged) ? 0 : 1;
    }
  EXPECT_GT(refused, static_cast<int>(good.size()));
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    std::string damaged = good;
    for (int k = 0; k < 4; ++k) damaged[random() % good.size()] = static_cast<char>(random());
    try_reading(damaged);
  }
}

}  // namespace
