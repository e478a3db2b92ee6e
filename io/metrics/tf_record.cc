// Uses a table for the checksum, and writes numbers in little-endian order on every machine.
#include "io/metrics/tf_record.h"

#include <array>

namespace io {
namespace {

constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);
    table[i] = crc;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kCrcTable = crc_table();

void append_number(std::string& to, std::uint64_t number, int bytes) {
  for (int i = 0; i < bytes; ++i) to.push_back(static_cast<char>((number >> (8 * i)) & 0xFF));
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char byte : bytes)
    crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  return ~crc;
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

std::string tf_record(std::string_view payload) {
  std::string record;
  record.reserve(payload.size() + 16);
  append_number(record, payload.size(), 8);
  append_number(record, masked_crc32c(record), 4);
  record.append(payload);
  append_number(record, masked_crc32c(payload), 4);
  return record;
}

}  // namespace io
