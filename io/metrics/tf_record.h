// TFRecord, the framing of TensorBoard's event files: length, payload and a checksum of each.
// https://www.tensorflow.org/tutorials/load_data/tfrecord, "TFRecords format details".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace io {

// CRC-32C (Castagnoli; RFC 3720, appendix B.4).
std::uint32_t crc32c(std::string_view bytes);
// The masked form that the format stores, so that checksums of data that contain checksums need no
// special treatment.
std::uint32_t masked_crc32c(std::string_view bytes);

// Returns the record of a payload.
std::string tf_record(std::string_view payload);

}  // namespace io
