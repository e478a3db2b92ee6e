// Serializes the messages field by field.
#include "io/metrics/event_messages.h"

namespace io::events {
namespace {

constexpr int kTensor = 8, kMetadata = 9;                // Summary.Value
constexpr std::int64_t kFloatType = 1, kStringType = 7;  // DataType

// Returns a SummaryMetadata that selects the plugin for the value, with the plugin's content.
base::ProtobufMessage metadata(std::string_view plugin, const base::ProtobufMessage& content) {
  return base::ProtobufMessage().message(
      1, base::ProtobufMessage().text(1, plugin).message(2, content));  // plugin_data
}

// A TensorShapeProto with one dimension, 1.
base::ProtobufMessage shape_of_one() {
  return base::ProtobufMessage().message(2, base::ProtobufMessage().integer(1, 1));
}

// The hparams plugin stores its data in the metadata; the value itself is empty.
base::ProtobufMessage hparams_value(std::string_view tag, int field,
                                    const base::ProtobufMessage& content) {
  const base::ProtobufMessage data = base::ProtobufMessage().integer(1, 0).message(field, content);
  const base::ProtobufMessage nothing = base::ProtobufMessage()
                                            .integer(1, kFloatType)
                                            .message(2, shape_of_one())
                                            .text(4, std::string_view("\0\0\0\0", 4));
  return base::ProtobufMessage()
      .text(1, tag)
      .message(kTensor, nothing)
      .message(kMetadata, metadata("hparams", data));
}

// google.protobuf.Value
base::ProtobufMessage value_of(const Hyperparameter& option) {
  if (const double* number = std::get_if<double>(&option.value))
    return base::ProtobufMessage().real(2, *number);
  if (const bool* flag = std::get_if<bool>(&option.value))
    return base::ProtobufMessage().integer(4, *flag ? 1 : 0);
  return base::ProtobufMessage().text(3, std::get<std::string>(option.value));
}

// hparams' DataType
std::int64_t type_of(const Hyperparameter& option) {
  constexpr std::int64_t kText = 1, kFlag = 2, kNumber = 3;
  return std::holds_alternative<double>(option.value) ? kNumber
         : std::holds_alternative<bool>(option.value) ? kFlag
                                                      : kText;
}

}  // namespace

base::ProtobufMessage event(double time, std::int64_t step) {
  return base::ProtobufMessage().real(1, time).integer(2, step);
}

base::ProtobufMessage scalar_value(const std::string& tag, double value) {
  return base::ProtobufMessage().text(1, tag).real32(2, static_cast<float>(value));
}

base::ProtobufMessage text_value(const std::string& tag, const std::string& markdown) {
  return base::ProtobufMessage()
      .text(1, tag)
      .message(kTensor, base::ProtobufMessage()
                            .integer(1, kStringType)
                            .message(2, shape_of_one())
                            .text(8, markdown))
      .message(kMetadata, metadata("text", base::ProtobufMessage().integer(1, 0)));
}

base::ProtobufMessage image_value(const EventImage& image) {
  return base::ProtobufMessage()
      .text(1, image.tag)
      .message(4, base::ProtobufMessage()
                      .integer(1, image.height)
                      .integer(2, image.width)
                      .integer(3, image.channels)
                      .text(4, image.png));
}

base::ProtobufMessage histogram_value(const std::string& tag, const Histogram& h) {
  return base::ProtobufMessage().text(1, tag).message(5, base::ProtobufMessage()
                                                             .real(1, h.min)
                                                             .real(2, h.max)
                                                             .real(3, static_cast<double>(h.count))
                                                             .real(4, h.sum)
                                                             .real(5, h.sum_squares)
                                                             .packed(6, h.limits)
                                                             .packed(7, h.counts));
}

base::ProtobufMessage experiment_value(double time, const std::vector<Hyperparameter>& options,
                                       const std::vector<std::string>& metrics) {
  base::ProtobufMessage experiment = base::ProtobufMessage().real(3, time);
  for (const Hyperparameter& option : options)
    experiment.message(4, base::ProtobufMessage().text(1, option.name).integer(4, type_of(option)));
  for (const std::string& tag : metrics)
    experiment.message(5, base::ProtobufMessage().message(1, base::ProtobufMessage().text(2, tag)));
  return hparams_value("_hparams_/experiment", 2, experiment);
}

base::ProtobufMessage session_start_value(double time, const std::string& run,
                                          const std::vector<Hyperparameter>& options) {
  base::ProtobufMessage start;
  for (const Hyperparameter& option : options)  // entries of a map
    start.message(1, base::ProtobufMessage().text(1, option.name).message(2, value_of(option)));
  start.text(4, run).real(5, time);
  return hparams_value("_hparams_/session_start_info", 3, start);
}

base::ProtobufMessage session_end_value(double time, bool success) {
  constexpr std::int64_t kSuccess = 1, kFailure = 2;
  return hparams_value(
      "_hparams_/session_end_info", 4,
      base::ProtobufMessage().integer(1, success ? kSuccess : kFailure).real(2, time));
}

}  // namespace io::events
