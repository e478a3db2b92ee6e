// Field by field.
#include "io/metrics/event_messages.h"

namespace io::events {
namespace {

constexpr int kTensor = 8, kMetadata = 9;                // Summary.Value
constexpr std::int64_t kFloatType = 1, kStringType = 7;  // DataType

// SummaryMetadata that says which plugin shows the value, with what the plugin keeps there.
ProtobufWriter metadata(std::string_view plugin, const ProtobufWriter& content) {
  return ProtobufWriter().message(
      1, ProtobufWriter().bytes(1, plugin).message(2, content));  // plugin_data
}

// TensorShapeProto of one dimension, 1.
ProtobufWriter shape_of_one() {
  return ProtobufWriter().message(2, ProtobufWriter().integer(1, 1));
}

// What the hparams plugin keeps is in the metadata; the value itself says nothing.
ProtobufWriter hparams_value(std::string_view tag, int field, const ProtobufWriter& content) {
  const ProtobufWriter data = ProtobufWriter().integer(1, 0).message(field, content);
  const ProtobufWriter nothing = ProtobufWriter()
                                     .integer(1, kFloatType)
                                     .message(2, shape_of_one())
                                     .bytes(4, std::string_view("\0\0\0\0", 4));
  return ProtobufWriter()
      .bytes(1, tag)
      .message(kTensor, nothing)
      .message(kMetadata, metadata("hparams", data));
}

// google.protobuf.Value
ProtobufWriter value_of(const Hyperparameter& option) {
  if (const double* number = std::get_if<double>(&option.value))
    return ProtobufWriter().real(2, *number);
  if (const bool* flag = std::get_if<bool>(&option.value))
    return ProtobufWriter().integer(4, *flag ? 1 : 0);
  return ProtobufWriter().bytes(3, std::get<std::string>(option.value));
}

// hparams' DataType
std::int64_t type_of(const Hyperparameter& option) {
  constexpr std::int64_t kText = 1, kFlag = 2, kNumber = 3;
  return std::holds_alternative<double>(option.value) ? kNumber
         : std::holds_alternative<bool>(option.value) ? kFlag
                                                      : kText;
}

}  // namespace

ProtobufWriter event(double time, std::int64_t step) {
  return ProtobufWriter().real(1, time).integer(2, step);
}

ProtobufWriter scalar_value(const std::string& tag, double value) {
  return ProtobufWriter().bytes(1, tag).real32(2, static_cast<float>(value));
}

ProtobufWriter text_value(const std::string& tag, const std::string& markdown) {
  return ProtobufWriter()
      .bytes(1, tag)
      .message(
          kTensor,
          ProtobufWriter().integer(1, kStringType).message(2, shape_of_one()).bytes(8, markdown))
      .message(kMetadata, metadata("text", ProtobufWriter().integer(1, 0)));
}

ProtobufWriter image_value(const EventFile::Image& image) {
  return ProtobufWriter()
      .bytes(1, image.tag)
      .message(4, ProtobufWriter()
                      .integer(1, image.height)
                      .integer(2, image.width)
                      .integer(3, image.channels)
                      .bytes(4, image.png));
}

ProtobufWriter histogram_value(const std::string& tag, const Histogram& h) {
  return ProtobufWriter().bytes(1, tag).message(5, ProtobufWriter()
                                                       .real(1, h.min)
                                                       .real(2, h.max)
                                                       .real(3, static_cast<double>(h.count))
                                                       .real(4, h.sum)
                                                       .real(5, h.sum_squares)
                                                       .packed(6, h.limits)
                                                       .packed(7, h.counts));
}

ProtobufWriter experiment_value(double time, const std::vector<Hyperparameter>& options,
                                const std::vector<std::string>& metrics) {
  ProtobufWriter experiment = ProtobufWriter().real(3, time);
  for (const Hyperparameter& option : options)
    experiment.message(4, ProtobufWriter().bytes(1, option.name).integer(4, type_of(option)));
  for (const std::string& tag : metrics)
    experiment.message(5, ProtobufWriter().message(1, ProtobufWriter().bytes(2, tag)));
  return hparams_value("_hparams_/experiment", 2, experiment);
}

ProtobufWriter session_start_value(double time, const std::string& run,
                                   const std::vector<Hyperparameter>& options) {
  ProtobufWriter start;
  for (const Hyperparameter& option : options)  // entries of a map
    start.message(1, ProtobufWriter().bytes(1, option.name).message(2, value_of(option)));
  start.bytes(4, run).real(5, time);
  return hparams_value("_hparams_/session_start_info", 3, start);
}

ProtobufWriter session_end_value(double time, bool success) {
  constexpr std::int64_t kSuccess = 1, kFailure = 2;
  return hparams_value("_hparams_/session_end_info", 4,
                       ProtobufWriter().integer(1, success ? kSuccess : kFailure).real(2, time));
}

}  // namespace io::events
