// Writes ONNX's messages with the field numbers of onnx.proto.
#include "io/interchange/onnx_writer.h"

#include <limits>

#include "io/base/formats/protobuf_message.h"
#include "io/base/text/utf8.h"
#include "io/checkpoint/atomic_file.h"

namespace io {
namespace {

// TensorProto.DataType
int onnx_type(DType type) {
  switch (type) {
    case DType::kF32:
      return 1;
    case DType::kU8:
      return 2;
    case DType::kI32:
      return 6;
    case DType::kI64:
      return 7;
    case DType::kF16:
      return 10;
    case DType::kF64:
      return 11;
    case DType::kBF16:
      return 16;
  }
  return 0;
}

class OnnxMessages {
 public:
  explicit OnnxMessages(const std::string& path) : path_(path) {}

  base::ProtobufMessage model(const OnnxModel& model) const {
    base::ProtobufMessage opset;
    opset.integer(2, kOnnxOpset);  // OperatorSetIdProto.version, in ONNX's own domain
    base::ProtobufMessage message;
    message.integer(1, kOnnxIrVersion);
    add_text(message, 2, model.producer);
    add_text(message, 3, model.producer_version);
    message.message(7, graph(model));
    message.message(8, std::move(opset));
    for (const auto& [key, value] : model.metadata) {
      base::ProtobufMessage entry;
      add_text(entry, 1, key);
      add_text(entry, 2, value);
      message.message(14, std::move(entry));
    }
    return message;
  }

 private:
  void add_text(base::ProtobufMessage& message, int field, const std::string& text) const {
    if (!base::is_utf8(text))
      throw DataError(path_ + ": '" + text + "' cannot be saved: it is not UTF-8");
    message.text(field, text);
  }

  base::ProtobufMessage graph(const OnnxModel& model) const {
    base::ProtobufMessage message;
    for (const OnnxNode& each : model.nodes) message.message(1, node(each));
    add_text(message, 2, model.name);
    for (const NamedArray& each : model.constants) message.message(5, tensor(each));
    for (const OnnxValue& each : model.inputs) message.message(11, value(each));
    for (const OnnxValue& each : model.outputs) message.message(12, value(each));
    return message;
  }

  base::ProtobufMessage node(const OnnxNode& node) const {
    base::ProtobufMessage message;
    for (const std::string& input : node.inputs) add_text(message, 1, input);
    for (const std::string& output : node.outputs) add_text(message, 2, output);
    add_text(message, 3, node.name);
    add_text(message, 4, node.type);
    for (const OnnxAttribute& each : node.attributes) message.message(5, attribute(each));
    return message;
  }

  base::ProtobufMessage attribute(const OnnxAttribute& attribute) const {
    enum Type { kFloat = 1, kInt = 2, kString = 3, kInts = 7 };
    base::ProtobufMessage message;
    add_text(message, 1, attribute.name);
    Type type = kInts;
    if (const auto* real = std::get_if<float>(&attribute.value)) {
      message.real32(2, *real);
      type = kFloat;
    } else if (const auto* whole = std::get_if<std::int64_t>(&attribute.value)) {
      message.integer(3, *whole);
      type = kInt;
    } else if (const auto* text = std::get_if<std::string>(&attribute.value)) {
      add_text(message, 4, *text);
      type = kString;
    } else {
      for (const std::int64_t item : std::get<std::vector<std::int64_t>>(attribute.value))
        message.integer(8, item);
    }
    message.integer(20, type);
    return message;
  }

  base::ProtobufMessage tensor(const NamedArray& array) const {
    std::uint64_t bytes = size_of(array.type);
    for (const std::int64_t d : array.shape) bytes *= static_cast<std::uint64_t>(d);
    if (bytes != array.data.size())
      throw DataError(
          path_ + ": '" + array.name + "' cannot be saved: " + std::to_string(array.data.size()) +
          " bytes do not fit its shape and type, " + "which need " + std::to_string(bytes));
    base::ProtobufMessage message;
    for (const std::int64_t d : array.shape) message.integer(1, d);
    message.integer(2, onnx_type(array.type));
    add_text(message, 8, array.name);
    message.view(9, array.data);  // little-endian, as in memory
    return message;
  }

  base::ProtobufMessage value(const OnnxValue& value) const {
    base::ProtobufMessage shape;
    for (const OnnxDimension& each : value.shape) {
      base::ProtobufMessage dimension;
      if (const auto* extent = std::get_if<std::int64_t>(&each))
        dimension.integer(1, *extent);
      else
        add_text(dimension, 2, std::get<std::string>(each));
      shape.message(1, std::move(dimension));
    }
    base::ProtobufMessage tensor;
    tensor.integer(1, onnx_type(value.type));
    tensor.message(2, std::move(shape));
    base::ProtobufMessage type;
    type.message(1, std::move(tensor));
    base::ProtobufMessage message;
    add_text(message, 1, value.name);
    message.message(2, std::move(type));
    return message;
  }

  const std::string& path_;
};

}  // namespace

std::uint64_t save_onnx(const OnnxModel& model, const std::string& path) {
  const base::ProtobufMessage message = OnnxMessages(path).model(model);
  constexpr std::uint64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (message.size() > kMost)
    throw DataError(path + ": the model takes " + std::to_string(message.size()) +
                    " bytes as ONNX, and a file may have at most " + std::to_string(kMost) +
                    " (a limit of Protocol Buffers): export it as .safetensors");
  AtomicFile file(path, message.size());
  message.write([&](std::span<const std::byte> bytes) { file.write(bytes); });
  file.commit();
  return message.size();
}

}  // namespace io
