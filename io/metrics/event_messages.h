// Serializes the messages of event files: parts of TensorFlow's event.proto and summary.proto and
// of TensorBoard's plugin_data.proto (hparams), with their field numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/base/formats/protobuf_message.h"
#include "io/metrics/event_values.h"
#include "io/metrics/histogram.h"

namespace io::events {

// Returns an Event of this time and step, to which the caller adds its `what`.
base::ProtobufMessage event(double time, std::int64_t step);
inline constexpr int kFileVersion = 3, kSummary = 5, kSessionLog = 7;  // Event.what

// Summary.Value
base::ProtobufMessage scalar_value(const std::string& tag, double value);
base::ProtobufMessage text_value(const std::string& tag, const std::string& markdown);
base::ProtobufMessage image_value(const EventImage& image);
base::ProtobufMessage histogram_value(const std::string& tag, const Histogram& histogram);

// The three values of the hparams plugin: the existing options and metrics, the values of this run,
// and how it ended.
base::ProtobufMessage experiment_value(double time, const std::vector<Hyperparameter>& options,
                                       const std::vector<std::string>& metrics);
base::ProtobufMessage session_start_value(double time, const std::string& run,
                                          const std::vector<Hyperparameter>& options);
base::ProtobufMessage session_end_value(double time, bool success);

}  // namespace io::events
